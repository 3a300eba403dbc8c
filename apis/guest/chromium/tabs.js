// What a model is told of tabs and bookmarks; each function runs in the hidden page of the helper extension.
(() => {
  const TITLE = 101, ADDRESS = 201, TABS = 60, STATE = 2000; // characters and tabs, each at most
  const cut = (text, most) => (text ?? '').slice(0, most);
  const inFront = async () => (await chrome.tabs.query({active: true, lastFocusedWindow: true}))[0];
  const marks = async url => await chrome.bookmarks.search({url}).catch(() => []);

  return {
    tabs: async () => {
      const front = await chrome.windows.getLastFocused();
      const windows = await chrome.windows.getAll({populate: true});
      const [at] = await chrome.tabs.query({active: true, windowId: front.id});
      const marked = at && at.url ? await marks(at.url) : [];
      const row = tab => [tab.active, cut(tab.title, TITLE), cut(tab.url, ADDRESS)];
      return {focused: front.focused, marked: marked.length > 0, windows: windows.map(each =>
        [each.id === front.id, each.tabs.length, each.tabs.slice(0, TABS).map(row)])};
    },

    shownBookmarks: async () => {
      const strip = mark => mark.url === undefined ? [mark.title, mark.children.map(strip)] : [mark.title, mark.url];
      const roots = (await chrome.bookmarks.getTree())[0].children;
      return Object.fromEntries(roots.map(root => [root.folderType, root.children.map(strip)]));
    },

    bookmark: async () => {
      const tab = await inFront();
      if (!tab || !tab.url) return null;
      const [old] = await marks(tab.url);
      const bar = (await chrome.bookmarks.getTree())[0].children.find(each => each.folderType === 'bookmarks-bar');
      const made = old ?? await chrome.bookmarks.create({parentId: bar.id, title: tab.title ?? '', url: tab.url});
      const [mark] = await chrome.bookmarks.get(made.id);
      const [folder] = await chrome.bookmarks.get(mark.parentId);
      return [Boolean(old), cut(mark.title, TITLE), cut(mark.url, ADDRESS), folder.title];
    },

    bringBack: async () => {
      const [last] = await chrome.sessions.getRecentlyClosed({maxResults: 1});
      if (!last) return null;
      const tabs = last.tab ? [last.tab] : last.window.tabs;
      await chrome.sessions.restore((last.tab ?? last.window).sessionId);
      return [tabs.length, cut(tabs[0].title, TITLE), cut(tabs[0].url, ADDRESS)];
    },

    front: async () => {
      const tab = await inFront();
      return [(await chrome.windows.getLastFocused()).focused, tab ? cut(tab.title || tab.url, TITLE) : null];
    },

    state: async () => {
      const front = await inFront();
      const tabs = (await chrome.tabs.query({})).slice(0, TABS);
      return [tabs.map(tab => [cut(tab.pendingUrl || tab.url, STATE), cut(tab.title, STATE)]),
        tabs.findIndex(tab => front && tab.id === front.id)];
    },
  };
})()
