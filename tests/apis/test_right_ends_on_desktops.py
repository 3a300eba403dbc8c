"""Published task files on real desktops: an end that is known to be right scores 1, and a near miss below it.

The end is put there after the set-up, with stand-ins in place of what the file fetches. Then everything is as in an
evaluation: the program that shows the file, what runs after the last action, the freeze, the reader, the metrics.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import NamedTuple

import pytest

from actors.cluster.config import tasksets
from actors.desktop.pool.pool import DesktopPool
from apis.tasks import osworld
from apis.tasks.osworld import HOME
from apis.tasksets import published, store
from apis.tasksets.coverage import covered
from apis.tasksets.getters import WantedFixture
from tests.apis.plays import told
from tests.apis.standins import standins
from tests.apis.task_files import bring, ran
from tests.apis.test_standins import wanted
from tests.apis.test_task_files import OSWORLD
from tests.apis.test_task_files_on_desktops import CLAIM

pytestmark = pytest.mark.usefixtures("own_store")

MAIL = ".thunderbird/t5q2a5hp.default-release/ImapMail/outlook.office365.com/msgFilterRules.dat"
MOVED = (
    'version="9"\nname="x"\nenabled="yes"\nactionValue="%s"\naction="Move to folder"\n'
    'condition="AND (subject,contains,discount)"\n'
)
BOX = "mailbox://nobody@Local%20Folders/"
OFFICE, PHOTOS = ".config/libreoffice/4/user/registrymodifications.xcu", "Desktop/cpjpg/"
FONT = (
    '<oor:items xmlns:oor="http://openoffice.org/2001/registry"><item oor:path="/org.openoffice.Office.Writer/'
    'DefaultFont"><prop oor:name="Standard" oor:op="fuse"><value>%s</value></prop></item></oor:items>'
)
MONK = "monk252520thailand252520wat252520arun252520scaled25255B225255D"
JPGS = ("emnlp2023", "hk_group_photo", "hong-kong-china", MONK)


class Ending(NamedTuple):
    """Files of a right end and of a near miss, by their paths below HOME; without any what the task file expects.

    A program that would write its own over them is `closed` before.
    """

    task: str
    right: dict[str, bytes] = {}
    wrong: dict[str, bytes] = {}
    closed: str = ""


ENDINGS = [
    Ending("libreoffice_calc/01b269ae"),  # cells
    Ending("libreoffice_calc/0cecd4f3"),  # a pivot table or a chart
    Ending("libreoffice_impress/0a211154"),
    Ending("libreoffice_writer/adf5e2c3"),
    Ending("libreoffice_writer/66399b0d"),  # tables
    Ending(
        "libreoffice_writer/f178a4a9",
        {OFFICE: (FONT % "Times New Roman").encode()},
        {OFFICE: (FONT % "Times").encode()},
        closed="soffice.bin",
    ),
    Ending("libreoffice_writer/6a33f9b9"),  # an OpenDocument text
    Ending("libreoffice_writer/8472fece"),  # colours of words
    Ending("multi_apps/788b3701"),  # shared lines
    Ending("multi_apps/c867c42d"),  # a table in text, and a workbook
    Ending("vs_code/0ed39f63"),
    Ending("multi_apps/8df7e444"),  # an archive
    Ending("multi_apps/91190194"),  # a picture
    Ending("multi_apps/f918266a"),  # a text
    Ending("gimp/7767eef2", {".config/GIMP/2.10/gimprc": b'(theme "Light")\n'}, {".config/GIMP/2.10/gimprc": b""}),
    Ending("thunderbird/5203d847", {MAIL: (MOVED % f"{BOX}Promotions").encode()}, {MAIL: (MOVED % BOX).encode()}),
    Ending(
        "vlc/9195653c",
        {".config/vlc/vlcrc": b"[qt]\nqt-max-volume=200\n"},
        {".config/vlc/vlcrc": b"[qt]\nqt-max-volume=20\n"},
    ),
    Ending(
        "vs_code/276cc624",
        {".config/Code/User/settings.json": b'{"editor.wordWrapColumn": 50}'},
        {".config/Code/User/settings.json": b'{"editor.wordWrapColumn": "50"}'},
    ),
    Ending(
        "os/23393935",
        {f"{PHOTOS}{name}.jpg": b"x" for name in JPGS},
        {f"{PHOTOS}{name}.jpg": b"x" for name in JPGS[:3]},
    ),
]


def ended(file: Path, name: str, end: dict[str, bytes], closed: str, folder: Path) -> Path:
    """The task file, called `name`, with `end` put there once all is set up."""
    task = json.loads(file.read_bytes())
    gone = ran(f"pkill {closed}; while pgrep {closed}; do sleep 0.1; done", shell=True)
    steps = [*task["config"], *([gone] if closed else []), bring({f"{HOME}/{path}": end[path] for path in end})]
    place = folder / f"{name}.json"
    place.write_text(json.dumps({**task, "id": name, "config": steps}))
    return place


@pytest.mark.proof
@pytest.mark.timeout(900)
@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.task)
async def test_a_right_end_scores_and_a_near_miss_does_not(pool: DesktopPool, tmp_path: Path, ending: Ending) -> None:
    if not OSWORLD.is_dir():
        pytest.skip("published task files do not lie beside this checkout")
    (file,) = OSWORLD.glob(f"{ending.task}*.json")
    task = osworld.load(file.read_bytes())
    fixtures = standins(task)
    for id_ in (task.id, "right", "wrong"):
        for (url, called), data in fixtures.items():
            store.keep(WantedFixture(id_, url, called), data)
    asked = published.is_here()
    found = covered(task, store.Fixtures(task).at_hand, tasksets.programs(), published=asked)
    if found.verdict in ("needs_app", "needs_judge"):
        pytest.skip(f"{found.needs[0]} is not here")
    assert found.verdict == "runnable"
    right = ending.right or dict(pair for pair in wanted(task, fixtures) if pair)
    wrong = ending.wrong or {f"{path}~": data for path, data in right.items()}
    files = [ended(file, name, end, ending.closed, tmp_path) for name, end in (("right", right), ("wrong", wrong))]
    name = store.adopt("mine", files, pinned=False)
    plays = await asyncio.gather(*(told(pool, task_id, CLAIM, published=asked) for task_id in store.ids(name)))
    assert [play.faults for play in plays] == [[], []]
    assert plays[0].success, plays[0].detail
    assert not plays[1].success, plays[1].detail
