// What Chromium's own pages hold, as lines that a model reads; each function runs in its page and gives null until that
// has loaded.
(() => {
  const on = value => value ? 'on' : 'off';
  // The values of preferences by name; null before the page has its interface.
  const preferences = async () => typeof chrome.settingsPrivate !== 'object' ? null
    : Object.fromEntries((await chrome.settingsPrivate.getAllPrefs()).map(each => [each.key, each.value]));
  // The answer to a message that the settings page sends to the browser.
  const asked = async message => (await import('chrome://resources/js/cr.js')).sendWithPromise(message);
  // Parts that a page hides from its document: open shadow trees.
  const all = (root, name) => {
    const found = [];
    const walk = node => {
      for (const each of node.children ?? []) {
        if (each.localName === name) found.push(each);
        if (each.shadowRoot) walk(each.shadowRoot);
        walk(each);
      }
    };
    walk(root);
    return found;
  };

  return {
    profile: async () => {
      const values = await preferences();
      if (!values) return null;
      const profile = await asked('getProfileInfo'), sync = await asked('SyncSetupGetSyncStatus');
      const next = values['signin.allowed_on_next_startup'] ? 'allowed' : 'not allowed';
      return [`profile: ${profile.name ?? ''}`, `signed in: ${sync.signedInUsername || 'no'}`,
        `sign-in at the next start: ${next}`];
    },

    passwords: async () => {
      const values = await preferences();
      if (!values) return null;
      const saved = (await chrome.passwordsPrivate.getSavedPasswordList()).slice(0, 20);
      return [
        `offer to save passwords: ${on(values.credentials_enable_service)}`,
        `sign in automatically: ${on(values.credentials_enable_autosignin)}`,
        `warn of leaked passwords: ${on(values['profile.password_manager_leak_detection'])}`,
        `saved passwords: ${saved.length}`,
        ...saved.map(each => `- ${each.username} at ${each.affiliatedDomains?.[0]?.name ?? ''}`),
      ];
    },

    privacy: async () => {
      const values = await preferences();
      if (!values) return null;
      const browsing = ['off', 'standard', 'enhanced'][values['generated.safe_browsing']];
      const cookies = ['blocked', 'allowed'][values['generated.third_party_cookie_blocking_setting']];
      return [
        `safe browsing: ${browsing ?? 'other'}`,
        `third-party cookies: ${cookies ?? 'other'}`,
        `do not track: ${on(values.enable_do_not_track)}`,
        `secure DNS: ${values['dns_over_https.mode'] ?? 'None'}`,
        `warn of leaked passwords: ${on(values['profile.password_manager_leak_detection'])}`,
      ];
    },

    appearance: async () => {
      const values = await preferences();
      if (!values) return null;
      const look = (await chrome.settingsPrivate.getPref('extensions.theme.system_theme')).value;
      const zoom = await chrome.settingsPrivate.getDefaultZoom();
      const home = values.homepage_is_newtabpage ? '' : values.homepage;
      const bar = ['always', 'on the new tab page', 'never'][values['bookmark_bar.visibility_state']];
      return [
        `theme: ${values['extensions.theme.id'] || (['classic', 'GTK'][look] ?? 'other')}`,
        `home button: ${on(values['browser.show_home_button'])}`,
        `home page: ${home || 'the new tab page'}`,
        `bookmarks bar: ${bar ?? 'other'}`,
        `font size: ${values['webkit.webprefs.default_font_size'] ?? 'None'}`,
        `smallest font size: ${values['webkit.webprefs.minimum_font_size'] ?? 'None'}`,
        `standard font: ${values['webkit.webprefs.fonts.standard.Zyyy'] ?? 'None'}`,
        `page zoom: ${Math.round(100 * zoom)} %`,
      ];
    },

    engines: async () => {
      if (typeof chrome.settingsPrivate !== 'object') return null;
      const {defaults, actives} = await asked('getSearchEnginesList');
      const engines = [...defaults, ...actives].slice(0, 30);
      const named = (engine, mark) => `${mark} ${engine.name} (${engine.keyword})`;
      return [...engines.filter(each => each.default).map(each => named(each, 'search engine in use:')),
        ...engines.filter(each => !each.default).map(each => named(each, '-'))];
    },

    extensions: async () => {
      if (typeof chrome.developerPrivate !== 'object') return null;
      const found = (await chrome.developerPrivate.getExtensionsInfo()).slice(0, 50);
      const lines = found.map(each => `${each.name} ${each.version}: ${on(each.state === 'ENABLED')}`);
      return lines.length ? lines : ['no extension is installed'];
    },

    bookmarks: async () => {
      if (typeof chrome.bookmarks !== 'object') return null;
      const lines = [];
      const walk = (node, folder) => {
        for (const each of node.children ?? []) {
          if (lines.length >= 100) return;
          if (each.url) lines.push(`${folder}: ${each.title.slice(0, 100) || 'no title'} | ${each.url.slice(0, 200)}`);
          else walk(each, folder ? `${folder}/${each.title}` : each.title);
        }
      };
      for (const root of await chrome.bookmarks.getTree()) walk(root, '');
      return lines.length ? lines : ['no bookmark is saved'];
    },

    print: () => {
      const [to] = all(document, 'print-preview-destination-select');
      const [head] = all(document, 'print-preview-header');
      const [strip] = all(document, 'print-preview-button-strip');
      const sheets = head?.shadowRoot?.textContent.match(/\d+ (page|sheet)s?( of paper)?/);
      const select = to?.shadowRoot?.querySelector('select');
      const button = strip?.shadowRoot?.querySelector('.action-button');
      if (!sheets || !select || !select.selectedOptions.length || !button) return null;
      return [`destination: ${select.selectedOptions[0].textContent.trim()}`, `sheets: ${sheets[0]}`,
        `its button '${button.textContent.trim()}' goes on, 'Cancel' closes it`];
    },

    data: () => {
      const [dialog] = all(document, 'settings-clear-browsing-data-dialog');
      const inside = dialog?.shadowRoot;
      if (!inside?.querySelector('cr-dialog')?.open) return null;
      const chip = all(inside, 'cr-chip').find(each => each.selected);
      const button = inside.querySelector('#deleteButton');
      const boxes = all(inside, 'settings-checkbox');
      if (!chip || !button || !boxes.length) return null;
      const named = ticked =>
        boxes.filter(each => each.checked === ticked).map(each => each.textContent.trim()).join(', ') || 'nothing';
      return [`time range: ${chip.textContent.trim()}`, `ticked: ${named(true)}`, `not ticked: ${named(false)}`,
        `nothing is deleted until its button '${button.textContent.trim()}' is pressed`];
    },
  };
})()
