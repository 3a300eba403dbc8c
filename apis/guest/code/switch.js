// Puts an extension on the list of those that are switched off, and says so to the windows.
// False where it is there already.
(async (id) => {
  const name = 'vscode-web-state-db-global', store = 'ItemTable', key = 'extensionsIdentifiers/disabled';
  const done = (asked) => new Promise((good, bad) => {
    asked.onsuccess = () => good(asked.result);
    asked.onerror = () => bad(asked.error);
  });
  const database = await done(indexedDB.open(name));
  try {
    const table = database.transaction(store, 'readwrite').objectStore(store);
    const off = JSON.parse((await done(table.get(key))) ?? '[]');
    if (off.some((each) => each.id.toLowerCase() === id)) return false;
    const value = JSON.stringify([...off, {id}]);
    await done(table.put(value, key));
    const channel = new BroadcastChannel(name);
    channel.postMessage({changed: new Map([[key, value]])});
    channel.close();
    return true;
  } finally {
    database.close();
  }
})
