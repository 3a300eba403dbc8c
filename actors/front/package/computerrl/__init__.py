"""ComputerRL for programs: desktops, tasks, episodes and runs.

    import asyncio
    import computerrl

    async def main() -> None:
        async with computerrl.Desktop("file_manager/train/3") as desktop:
            seen = await desktop.observe()
            print(seen.app, [window.title for window in seen.windows])
            print((await desktop.act("Agent.wait()")).text)

        task = computerrl.Task("file_manager/train/3")
        played = await computerrl.play(task, task.oracle())
        print(played.success, played.detail, len(played.steps))

    asyncio.run(main())

Invariant: everything here is the program's own: a desktop acts as an episode's does, a task is judged as a run judges
it, and a run is what `computerrl run` starts. Seconds and pixels are the units; `help()` of each name says what it
raises. Each error derives from `ComputerRLError` and has a text of one line.
"""

from actors.errors import AgentBrokeDesktop, DesktopFault, GuestRefused
from actors.front.library import ActionRefused, ActionResult, DesktopSettings, Policy, Seen, play
from actors.front.library import DesktopHandle as Desktop
from actors.front.library import TaskHandle as Task
from actors.front.library import opened as desktops
from actors.front.run import RunHandle as Run
from runtime.errors import ComputerRLError, ConfigError, DeadlineExceeded

__all__ = [
    "ActionRefused",
    "ActionResult",
    "AgentBrokeDesktop",
    "ComputerRLError",
    "ConfigError",
    "DeadlineExceeded",
    "Desktop",
    "DesktopFault",
    "DesktopSettings",
    "GuestRefused",
    "Policy",
    "Run",
    "Seen",
    "Task",
    "desktops",
    "play",
]
