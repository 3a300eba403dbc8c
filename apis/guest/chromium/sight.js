// What of a page a click reaches. `given` holds [x, y, w, h, role, name] of each listed element, in pixels of the screen
// from the page's left upper corner. The answer: {at: {index: null (covered) or [x, y, w, h]}, value: {index: text},
// boxes: [[role, name, x, y, w, h, checked, disabled, focused], ...], frames: [[path, left, top, clear, [index, ...]],
// ...]}; what is not found in the page is not in it. Frames are those of another origin: a script in each is to be asked.
(given) => {
  const EDGE = 2, MOST_BOXES = 200, MOST_DEPTH = 8, MOST_TEXT = 20000, MOST_NODES = 5000;
  const TEXTS = new Set(['static', 'heading', 'paragraph', 'list-item', 'label', 'section', 'text-frame', 'image']);
  const ACTIVE = 'a,area,button,summary,input,select,textarea,label,[role],[tabindex],[contenteditable],[onclick]';
  const scale = window.devicePixelRatio;
  const at = {}, value = {}, boxes = [], shown = new Set();
  if (window.visualViewport.scale !== 1) return null;

  const framed = element => ['IFRAME', 'FRAME', 'OBJECT'].includes(element.tagName) ? element.contentDocument : null;
  // Elements at a point of the page, the uppermost first, in frames and shadows too: [element, dx, dy of its frame].
  const under = (root, x, y, dx, dy, depth) => {
    const found = [];
    for (const element of root.elementsFromPoint(x, y)) {
      if (depth < MOST_DEPTH && element.shadowRoot && element.shadowRoot !== root)
        found.push(...under(element.shadowRoot, x, y, dx, dy, depth + 1).filter(([each]) => each.getRootNode() !== root));
      const inner = depth < MOST_DEPTH ? framed(element) : null;
      if (inner) {
        const box = element.getBoundingClientRect();
        const left = box.left + element.clientLeft, top = box.top + element.clientTop;
        found.push(...under(inner, x - left, y - top, dx + left, dy + top, depth + 1));
      }
      found.push([element, dx, dy]);
    }
    return found;
  };
  const stack = (x, y) => under(document, x, y, 0, 0, 0);
  // The first of those, which costs a tenth.
  const uppermost = (x, y) => {
    let root = document, element = null, dx = 0, dy = 0;
    for (let depth = 0; depth < MOST_DEPTH && root; depth++) {
      const next = root.elementFromPoint(x - dx, y - dy);
      if (!next || next === element) break;
      element = next;
      root = element.shadowRoot ?? framed(element);
      if (root && !element.shadowRoot) {
        const box = element.getBoundingClientRect();
        [dx, dy] = [dx + box.left + element.clientLeft, dy + box.top + element.clientTop];
      }
    }
    return [element, dx, dy];
  };
  const parent = node => node.parentNode || node.host || node.defaultView?.frameElement;
  const holds = (element, other) => {
    for (let node = other; node; node = parent(node)) if (node === element) return true;
    return false;
  };
  const reached = (element, x, y) => {
    const [top] = uppermost(x, y);
    return Boolean(top) && (holds(element, top) || [...element.labels ?? []].some(label => holds(label, top)));
  };
  const flat = text => (text ?? '').replace(/\s+/g, ' ').trim();
  const named = (element, name) => flat(element.textContent).includes(name)
    || [element.ariaLabel, element.value, element.title, element.alt, element.placeholder]
      .some(text => typeof text === 'string' && flat(text).includes(name));
  const same = ([element, dx, dy], [x, y, w, h]) => {
    const box = element.getBoundingClientRect();
    return [[box.left + dx, x], [box.top + dy, y], [box.right + dx, x + w], [box.bottom + dy, y + h]]
      .every(([one, other]) => Math.abs(one - other) * scale <= EDGE);
  };
  const opaque = element => {
    const style = getComputedStyle(element), [, , , alpha = 1] = style.backgroundColor.match(/[\d.]+/g) ?? [];
    const solid = Number(alpha) > 0.9 || ['IMG', 'CANVAS', 'VIDEO', 'IFRAME', 'FRAME', 'OBJECT'].includes(element.tagName);
    return solid && Number(style.opacity) > 0.9;
  };
  const middle = box => [box.left + box.width / 2, box.top + box.height / 2];
  const clipped = (box, dx, dy) => {
    const left = Math.max(0, box.left + dx), right = Math.min(innerWidth, box.right + dx);
    const top = Math.max(0, box.top + dy), bottom = Math.min(innerHeight, box.bottom + dy);
    return {left, top, width: right - left, height: bottom - top};
  };
  // The largest part of an element whose middle a click reaches; an element has several where it goes over lines.
  const part = (element, dx, dy) => [...element.getClientRects()].map(box => clipped(box, dx, dy))
    .filter(box => box.width > 1 && box.height > 1).sort((a, b) => b.width * b.height - a.width * a.height)
    .find(box => reached(element, ...middle(box)));
  const pixels = box => [box.left, box.top, box.width, box.height].map(each => Math.round(each * scale));

  // Documents and shadows of the page, with where their frames are. Frames that no script here sees into are `foreign`.
  const foreign = new Map();
  const within = (element, dx, dy) => {
    const box = element.getBoundingClientRect();
    return [dx + box.left + element.clientLeft, dy + box.top + element.clientTop];
  };
  const roots = (root, dx, dy, depth) => depth > MOST_DEPTH ? [] : [[root, dx, dy]].concat(
    ...[...root.querySelectorAll('*')].slice(0, MOST_NODES).map(element => {
      if (element.shadowRoot) return roots(element.shadowRoot, dx, dy, depth + 1);
      const inner = framed(element);
      if (inner) return roots(inner, ...within(element, dx, dy), depth + 1);
      if (element.contentWindow) foreign.set(element, [...within(element, dx, dy), []]);
      return [];
    }));
  const all = roots(document, 0, 0, 0);
  // What lies in a frame of another origin, unless something of this page is above it.
  const beyond = ([x, y, w, h], index, covers) => {
    const layers = stack(x + w / 2, y + h / 2), depth = layers.findIndex(([element]) => foreign.has(element));
    const above = layers.slice(0, Math.max(0, depth));
    if (depth < 0 || above.some(each => same(each, [x, y, w, h]))) return;
    if (above.some(([element]) => covers(element))) at[index] = null;
    else foreign.get(layers[depth][0])[2].push(index);
  };
  const note = (element, index) => {
    shown.add(element);
    if (element.type === 'range') value[index] = element.ariaValueText ?? element.value;
  };
  const look = (place, name, index) => {
    const [x, y, w, h] = place;
    const points = [[x + w / 2, y + h / 2], [x + w - 2, y + 2], [x + 2, y + h - 2], [x + 2, y + 2], [x + w - 2, y + h - 2]];
    const [top, left, above] = uppermost(...points[0]);
    for (let node = top; node; node = node.parentNode || node.host)
      if (node.matches?.(ACTIVE) && same([node, left, above], place) && (!name || named(node, name))) return note(node, index);
    for (const point of points) {
      const layers = stack(...point).filter(each => each[0].matches(ACTIVE) && same(each, place));
      const found = layers.find(([element]) => name && named(element, name)) ?? layers[0];
      if (!found) continue;
      const [element, dx, dy] = found;
      note(element, index);
      if (reached(element, ...points[0])) return;
      const box = part(element, dx, dy);
      at[index] = box ? pixels(box) : null;
      return;
    }
    beyond(place, index, () => true);
  };
  const says = (element, name) => element.textContent.length < MOST_TEXT && named(element, name);
  const read = ([x, y, w, h], name, index) => {
    const [top] = uppermost(x + w / 2, y + h / 2);
    if (!top || says(top, name)) return;
    const layers = stack(x + w / 2, y + h / 2).filter(([{parentElement}]) => parentElement?.parentElement);
    const own = layers.findIndex(([element]) => says(element, name));
    if (own < 0) return beyond([x, y, w, h], index, opaque);
    const above = layers.slice(0, own).filter(([element]) => !holds(layers[own][0], element));
    if (above.some(([element]) => opaque(element))) at[index] = null;
  };
  given.forEach(([x, y, w, h, role, name], index) => {
    const place = [x, y, w, h].map(each => each / scale);
    // A text has a sign in place of each link or field in it: its longest part will do.
    const longest = name.split('\ufffc').map(flat).reduce((one, other) => other.length > one.length ? other : one);
    if (TEXTS.has(role)) read(place, longest.slice(0, 200), index);
    else look(place, flat(name), index);
  });

  // Styled check boxes and radio buttons: they have no size or lie elsewhere, and their labels take the clicks.
  for (const [box, dx, dy] of all.flatMap(([root, dx, dy]) =>
    [...root.querySelectorAll('input[type=checkbox],input[type=radio]')].map(box => [box, dx, dy])).slice(0, MOST_BOXES)) {
    const own = box.getBoundingClientRect(), [x, y] = middle(own);
    if (shown.has(box) || (own.width > 2 && own.height > 2 && reached(box, x + dx, y + dy))) continue;
    for (const label of box.labels) {
      const place = part(label, dx, dy);
      if (!place) continue;
      const name = flat(box.ariaLabel ?? label.innerText).slice(0, 500);
      boxes.push([box.type === 'radio' ? 'radio-button' : 'check-box', name, ...pixels(place), box.checked,
        box.matches(':disabled'), box.getRootNode().activeElement === box]);
      break;
    }
  }
  const path = view => view === window ? []
    : [...path(view.parent), [...Array(view.parent.length).keys()].findIndex(number => view.parent[number] === view)];
  const frames = [...foreign].map(([element, [left, top, indexes]]) => {
    const points = [0.1, 0.5, 0.9].flatMap(x => [0.1, 0.5, 0.9].map(y => [x * element.clientWidth, y * element.clientHeight]));
    const clear = points.every(([x, y]) => uppermost(left + x, top + y)[0] === element);
    return [path(element.contentWindow), Math.round(left * scale), Math.round(top * scale), clear, indexes];
  }).filter(([numbers, , , clear, indexes]) => !numbers.includes(-1) && (clear || indexes.length));
  return {at, value, boxes, frames};
}
