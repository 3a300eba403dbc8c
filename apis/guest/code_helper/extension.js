// Answers the desktop's agent: one line of JSON each way per connection, over a socket in the session's own folder.
//
// Invariant: a request names one of METHODS; an answer is bounded and says either what holds or what went wrong. The
// socket's name leads to the window that was loaded last.
'use strict';

const fs = require('fs');
const net = require('net');
const path = require('path');
const vscode = require('vscode');

const MOST_REQUEST = 1 << 16;
const CONFIRM_MS = 5000;
const STAY_MS = 30000;
const REREAD_MS = 1000;
const REREADS = 20;
const MOST_TABS = 40;
const MOST_FOLDERS = 40;
const FOLDER = process.env.XDG_RUNTIME_DIR;
const NAME = path.join(FOLDER, 'code.sock');
const OWN = path.join(FOLDER, `code.${process.pid}.sock`);
const BORN = `${process.pid}.${Date.now()}`;

let server;

const file = (name) => vscode.Uri.file(name);
const command = (name, ...words) => vscode.commands.executeCommand(name, ...words);

function told(tab) {
  const input = tab.input || {};
  const uri = input.uri || input.modified || input.result;
  const other = input.original || input.base;
  return {
    label: tab.label,
    path: uri && uri.scheme !== 'untitled' ? uri.path : null,
    other: other ? other.path : null,
    active: tab.isActive && tab.group.isActive,
    dirty: tab.isDirty,
  };
}

function state() {
  const folders = vscode.workspace.workspaceFolders || [];
  const editor = vscode.window.activeTextEditor;
  const tabs = vscode.window.tabGroups.all.flatMap((group) => group.tabs);
  return {
    born: BORN,
    folders: folders.slice(0, MOST_FOLDERS).map((each) => each.uri.path),
    folderCount: folders.length,
    tabs: tabs.filter((each, at) => at < MOST_TABS || (each.isActive && each.group.isActive)).map(told),
    tabCount: tabs.length,
    place: editor && {
      path: editor.document.uri.path,
      line: editor.selection.active.line + 1,
      character: editor.selection.active.character + 1,
    },
    extensions: vscode.extensions.all.filter((each) => !each.packageJSON.isBuiltin).map((each) => each.id.toLowerCase()),
  };
}

// Make the socket's name lead here, in one step, whatever an earlier window left there.
function announce() {
  const link = `${OWN}.link`;
  fs.rmSync(link, { force: true });
  fs.symlinkSync(path.basename(OWN), link);
  fs.renameSync(link, NAME);
}

function leadsHere() {
  try {
    return fs.readlinkSync(NAME) === path.basename(OWN);
  } catch (error) {
    return false;
  }
}

// This process is about to end: who asks next waits for the one that comes after it, or for this one if it stays.
function leave() {
  if (leadsHere()) fs.rmSync(NAME);
  setTimeout(() => { if (!fs.existsSync(NAME)) announce(); }, STAY_MS);
}

const rest = (ms) => new Promise((done) => { setTimeout(done, ms); });

// A window that gets a list of folders may read it while it is still being written, and then shows none of them. It
// reads it again when the file changes, and has its extensions start again: this process then waits for its end.
async function reread() {
  for (let tries = 0; tries < REREADS && unread(); tries += 1) {
    const list = vscode.workspace.workspaceFile.path;
    fs.utimesSync(list, new Date(), new Date());
    await rest(REREAD_MS);
    if (!unread()) await rest(STAY_MS);
  }
}

function unread() {
  const list = vscode.workspace.workspaceFile;
  if (!list || list.scheme === 'untitled' || (vscode.workspace.workspaceFolders || []).length > 0) return false;
  try {
    return JSON.parse(fs.readFileSync(list.path, 'utf8')).folders.length > 0;
  } catch (error) {
    return error instanceof SyntaxError && fs.existsSync(list.path); // half written; else gone, or no list
  }
}

// Change the window's folders. That ends this process (`reloads`) in a window without a list of folders, which gets one and
// with it another page, and with another first folder. Else it is done once the window has confirmed it.
async function change(at, count, ...added) {
  const reloads = !vscode.workspace.workspaceFile || at === 0;
  let confirmed;
  const heard = new Promise((done) => { confirmed = done; });
  const listener = vscode.workspace.onDidChangeWorkspaceFolders(() => confirmed());
  const timer = setTimeout(confirmed, CONFIRM_MS);
  try {
    const done = vscode.workspace.updateWorkspaceFolders(at, count, ...added);
    if (done && reloads) leave();
    if (done && !reloads) await heard;
    return { ...state(), done, reloads };
  } finally {
    clearTimeout(timer);
    listener.dispose();
  }
}

const METHODS = {
  state,
  async syncs() {
    return { offered: (await vscode.commands.getCommands(false)).some((each) => each.startsWith('workbench.userDataSync.')) };
  },
  async openFile({ path: name, line, character }) {
    const document = await vscode.workspace.openTextDocument(file(name));
    const at = document.validatePosition(new vscode.Position(line - 1, character - 1));
    await vscode.window.showTextDocument(document, { preview: false, selection: new vscode.Range(at, at) });
    return state();
  },
  async openFolder({ path: name }) {
    // The page is loaded again and this process ends with it: whoever asked must hear of it before.
    leave();
    setImmediate(() => command('vscode.openFolder', file(name), { forceReuseWindow: true }));
    return state();
  },
  async addFolder({ path: name }) {
    const folders = vscode.workspace.workspaceFolders || [];
    const there = folders.some((each) => each.uri.path === name);
    return there ? { ...state(), done: true, reloads: false } : change(folders.length, 0, { uri: file(name) });
  },
  async removeFolder({ path: name }) {
    const folders = vscode.workspace.workspaceFolders || [];
    const at = folders.findIndex((each) => each.uri.path === name);
    return at < 0 ? { ...state(), done: true, reloads: false } : change(at, 1);
  },
  async compare({ left, right }) {
    const title = `${path.basename(left)} ↔ ${path.basename(right)}`;
    await command('vscode.diff', file(left), file(right), title, { preview: false });
    return state();
  },
  async merge({ one, two, base, result }) {
    const side = (name) => ({ uri: file(name), title: path.basename(name), description: '', detail: '' });
    await command('_open.mergeEditor', {
      base: file(base), input1: side(one), input2: side(two), output: file(result),
    });
    return state();
  },
  async install({ path: name }) {
    await command('workbench.extensions.installExtension', file(name));
    return state();
  },
  async uninstall({ id }) {
    await command('workbench.extensions.uninstallExtension', id);
    return state();
  },
};

async function answer(line) {
  const { method, ...words } = JSON.parse(line);
  if (!Object.hasOwn(METHODS, method)) throw new Error(`there is no method ${method}`);
  return METHODS[method](words);
}

function serve(connection) {
  let heard = '';
  connection.setEncoding('utf8');
  connection.on('error', () => connection.destroy());
  connection.on('data', async (piece) => {
    heard += piece;
    if (heard.length > MOST_REQUEST) return connection.destroy();
    const end = heard.indexOf('\n');
    if (end < 0) return undefined;
    let said;
    try {
      said = { value: await answer(heard.slice(0, end)) };
    } catch (error) {
      said = { error: String((error && error.message) || error).slice(0, 500) };
    }
    return connection.end(`${JSON.stringify(said)}\n`);
  });
}

exports.activate = () => {
  server = net.createServer(serve);
  server.listen(OWN, async () => {
    await reread();
    announce();
  });
};

exports.deactivate = () => {
  server.close();
};
