"""Plays one episode on a scene: observe, ask, parse, act, settle; then freeze and verify from outside.

Invariant: what this returns is an outcome of the policy. A fault of the infrastructure is raised as DesktopFault.
A feasible task is solved only if the agent claims it and the verifier agrees. Running out of turns, giving up or
breaking the desktop is then a failure, even if the file is right. An infeasible task is solved by giving up alone.
No transition leads from `VERIFYING` back to `ACTING`: a frozen desktop never thaws for the policy.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import msgspec

from actors.desktop.answers import Answer, Answerer, Prompt, PromptTooLong
from actors.desktop.config import WHOLE_ONE_IN, SeatConfig
from actors.desktop.pool.leased import parsed
from actors.desktop.recorder import Recorder
from actors.desktop.scene import DesktopScene, Judged, RememberedScene
from actors.errors import AgentBrokeDesktop, DesktopFault, GuestRefused
from actors.replay.messages import Lane, Outcome, PictureRef, Reservation, StepPayload, StepRef
from apis.actions.grammar import RefusedAnswer
from apis.actions.gui import Action, line
from apis.observation import Observation
from apis.prompts.compact import render_compact
from apis.prompts.published import render_published
from apis.prompts.text import Turn
from apis.tasks.osworld import Task
from apis.tasks.registry import task as task_of
from apis.tasks.verify.verify import TaskVerdict
from policy.pictures import noise
from runtime.errors import ConfigError, ProtocolError


class Stage(StrEnum):
    """What a seat is doing."""

    IDLE = "idle"  # waiting for the ledger
    RESTING = "resting"  # quarantined
    LEASING = "leasing"  # waiting for a booted desktop
    SETUP = "setup"
    OBSERVING = "observing"
    GENERATING = "generating"
    ACTING = "acting"  # act and settle
    VERIFYING = "verifying"
    REPORTING = "reporting"  # commit or release


BUSY = frozenset(Stage) - {Stage.IDLE, Stage.RESTING}

_NEXT: dict[Stage, frozenset[Stage]] = {
    Stage.IDLE: frozenset({Stage.LEASING, Stage.RESTING}),
    Stage.RESTING: frozenset({Stage.IDLE}),
    Stage.LEASING: frozenset({Stage.SETUP, Stage.REPORTING}),
    Stage.SETUP: frozenset({Stage.LEASING, Stage.OBSERVING, Stage.ACTING, Stage.VERIFYING, Stage.REPORTING}),
    # What is not remembered needs a desktop in the middle of an episode.
    Stage.OBSERVING: frozenset({Stage.LEASING, Stage.GENERATING, Stage.VERIFYING, Stage.REPORTING}),
    Stage.GENERATING: frozenset({Stage.LEASING, Stage.ACTING, Stage.VERIFYING, Stage.REPORTING}),
    Stage.ACTING: frozenset({Stage.LEASING, Stage.OBSERVING, Stage.VERIFYING, Stage.REPORTING}),
    Stage.VERIFYING: frozenset({Stage.REPORTING}),
    Stage.REPORTING: frozenset({Stage.IDLE}),
}


class StageClock:
    """Holds the current stage and adds up the seconds of each."""

    def __init__(self, now: float) -> None:
        self.stage = Stage.IDLE
        self.since = now
        self.seconds: dict[Stage, float] = dict.fromkeys(Stage, 0.0)
        self._reported = dict(self.seconds)
        self._reported_at = now

    def enter(self, stage: Stage, now: float) -> None:
        """Move to `stage` at `now` (seconds, monotonic). Raises ProtocolError on a transition that does not exist."""
        if stage not in _NEXT[self.stage]:
            raise ProtocolError(f"a seat can't go from {self.stage} to {stage}")
        self.seconds[self.stage] += now - self.since
        self.stage, self.since = stage, now

    def since_reported(self, now: float) -> tuple[float, dict[str, float]]:
        """When this was last asked for, and the seconds by stage since then; stages without any are left out."""
        seconds = dict(self.seconds)
        seconds[self.stage] += now - self.since
        spent = {str(stage): seconds[stage] - self._reported[stage] for stage in Stage}
        began, self._reported, self._reported_at = self._reported_at, seconds, now
        return began, {stage: value for stage, value in spent.items() if value > 0}

    def busy_s(self, now: float) -> float:
        """Seconds spent between a granted reservation and its report, up to `now`."""
        running = now - self.since if self.stage in BUSY else 0.0
        return sum(self.seconds[stage] for stage in BUSY) + running


class EpisodeEnding(StrEnum):
    """Why the agent's turn ended."""

    CLAIMED = "claimed"  # Agent.exit(success=True)
    GAVE_UP = "gave_up"  # Agent.exit(success=False)
    OUT_OF_STEPS = "out_of_steps"
    BROKE_DESKTOP = "broke_desktop"


def ending_after(step: int, max_turns: int, exit_success: bool | None) -> EpisodeEnding | None:
    """Whether the episode ends after its `step`-th step (from 0); `exit_success` is None for an action but exit."""
    if exit_success is not None:
        return EpisodeEnding.CLAIMED if exit_success else EpisodeEnding.GAVE_UP
    return EpisodeEnding.OUT_OF_STEPS if step + 1 >= max_turns else None


def needs_verifier(ending: EpisodeEnding, feasible: bool, *, scored: bool = False) -> bool:
    """Whether to read files: after a claim about a feasible task, and where its end state is `scored` after a time-out.

    OSWorld's score of giving up a feasible task is 0, whatever the files say.
    """
    return feasible and (ending is EpisodeEnding.CLAIMED or (scored and ending is EpisodeEnding.OUT_OF_STEPS))


def outcome_of(ending: EpisodeEnding, feasible: bool, verdict: TaskVerdict | None) -> Outcome:
    """The outcome of an ended episode; `verdict` is None when no verifier was needed."""
    score = None if verdict is None else verdict.points
    if ending is EpisodeEnding.CLAIMED and feasible:
        verified = verdict is not None and verdict.success
        return Outcome(success=verified, reason="verified" if verified else "not_verified", score=score)
    if ending is EpisodeEnding.GAVE_UP and not feasible:
        return Outcome(success=True, reason="verified", feasible=False, score=1.0)
    reason = {
        EpisodeEnding.CLAIMED: "not_verified",
        EpisodeEnding.GAVE_UP: "agent_gave_up",
        EpisodeEnding.OUT_OF_STEPS: "out_of_steps",
        EpisodeEnding.BROKE_DESKTOP: "agent_broke_desktop",
    }[ending]
    return Outcome(success=False, reason=reason, feasible=feasible, score=score)


Enter = Callable[[Stage], None]


class PlayedEpisode(msgspec.Struct, frozen=True):
    """An episode that no fault of the infrastructure ended."""

    outcome: Outcome
    steps: list[StepRef]
    detail: str  # the verifier's sentence, or what broke


class Episode:
    """One reservation on one scene. `enter` is called at every change of stage; the recorder stores each step."""

    def __init__(
        self,
        work: Reservation,
        scene: DesktopScene | RememberedScene,
        *,
        answerer: Answerer,
        recorder: Recorder,
        config: SeatConfig,
        enter: Enter,
    ) -> None:
        self._work = work
        self._task: Task = task_of(work.task)
        self._scene = scene
        self._answerer = answerer
        self._recorder = recorder
        self._config = config
        self._enter = enter
        self._history: list[Turn] = []
        self._steps: list[StepRef] = []
        self._shown: dict[str, PictureRef] = {}  # by digest: what the model has seen; the episode's steps bound it
        self.step = 0

    async def play(self) -> PlayedEpisode:
        """From a desktop, or what is remembered of one, to an outcome. Raises DesktopFault."""
        feasible = self._task.feasible
        judged: Judged | None = None
        try:
            self._enter(Stage.SETUP)
            await self._scene.prepare()
            ending, detail = await self._turns()
            if needs_verifier(ending, feasible, scored=self._work.lane is Lane.EVAL):
                await self._scene.reach_verdict()
        except AgentBrokeDesktop as broken:
            ending, detail = EpisodeEnding.BROKE_DESKTOP, str(broken)
        self._enter(Stage.VERIFYING)
        if needs_verifier(ending, feasible, scored=self._work.lane is Lane.EVAL):
            try:
                judged = await self._scene.judged()
            except AgentBrokeDesktop as broken:
                ending, detail = EpisodeEnding.BROKE_DESKTOP, str(broken)
            except ConfigError as error:
                raise DesktopFault("not_judged", str(error), "task") from error
            else:
                detail = judged.detail
                if judged.end is not None:
                    self._steps[-1] = await self._recorder.end_state(self._steps[-1], judged.end)
        verdict = None if judged is None else judged.verdict
        return PlayedEpisode(outcome_of(ending, feasible, verdict), self._steps, detail)

    async def _turns(self) -> tuple[EpisodeEnding, str]:
        last = None  # what the step before was answered
        try:
            while True:
                ending, last = await self._turn(last)
                if ending is not None:
                    return ending, str(ending)
                self.step += 1
        except PromptTooLong as error:
            if not self._history:  # the first prompt is what the task and the deploy file made it
                raise DesktopFault("prompt_refused", str(error), "task") from error
            return EpisodeEnding.OUT_OF_STEPS, str(error)

    async def _turn(self, last: str | None) -> tuple[EpisodeEnding | None, str]:
        """One turn: whether it ends the episode, and what came of its action.

        Its prompt goes with it, for a seat spends most of its time waiting for the next answer.
        """
        self._enter(Stage.OBSERVING)
        started = time.monotonic()
        observation = await self._scene.observe()
        shot = await self._shot(observation)
        observed = time.monotonic()
        self._enter(Stage.GENERATING)
        prompt = self._prompt(observation, last, shot)
        answer = await self._answerer.answer(self.step, prompt, observation, self._history, last)
        self._enter(Stage.ACTING)
        action = self._parse(answer, observation)
        ending, picture, broken = None, None, None
        acting = time.monotonic()
        try:
            result, ends = await self._act(action, observation)
            acted = time.monotonic()
            ending = ending_after(self.step, self._work.max_turns, ends)
            picture = await self._picture(ending)
        except AgentBrokeDesktop as error:
            result, acted, broken = error.cause, time.monotonic(), error
        timing = {
            "observe_ms": 1e3 * (observed - started),
            "generate_ms": 1e3 * answer.seconds,
            "act_ms": 1e3 * (acted - acting),
        }
        # The step that ended the desktop is the one that has to be seen to fail: it is kept like any other.
        await self._record(prompt, answer, action=action, result=result, picture=picture, timing=timing)
        if broken is not None:
            raise broken
        if ending is None:
            typed = None if isinstance(action, RefusedAnswer) else line(action)
            self._history.append(Turn(answer=answer.text, line=typed, result=result))
        return ending, result

    async def _shot(self, observation: Observation) -> bytes:
        """The picture for the model, taken with the observation; nothing where it sees none."""
        sight = self._config.sight
        if not sight.picture:
            return b""
        if sight.noise:
            return noise(observation.screen, f"{self._work.seed} {self.step}")
        return await self._scene.picture()

    def _prompt(self, observation: Observation, last: str | None, shot: bytes) -> Prompt:
        instruction, first = self._task.instruction, self._config.sight.template.picture == "first"
        if self._config.format == "compact":
            user = render_compact(
                instruction, self._history, observation, last, self._config.action_space, sight=self._config.sight
            )
            return Prompt(user=user, picture=shot, picture_first=first)
        messages = render_published(
            instruction, observation.app, self._history, observation, last, space=self._config.action_space,
            sight=self._config.sight,
        )  # fmt: skip
        system, *turns, state = [message["content"] for message in messages]
        earlier = tuple(zip(turns[::2], turns[1::2], strict=True))
        return Prompt(user=state, system=system, earlier=earlier, picture=shot, picture_first=first)

    def _parse(self, answer: Answer, observation: Observation) -> Action | RefusedAnswer:
        if answer.refusal:
            return RefusedAnswer(answer.refusal)
        return parsed(answer.text, observation, self._config, answer.cut)

    async def _act(self, action: Action | RefusedAnswer, observation: Observation) -> tuple[str, bool | None]:
        if isinstance(action, RefusedAnswer):
            return action.reason, None
        return await self._scene.act(action, observation)

    async def _picture(self, ending: EpisodeEnding | None) -> Any:
        """A screenshot if one is wanted; none from an agent that refuses: an episode is judged without one as well.

        What the model saw is kept, so people need no other picture unless they ask for all.

        Nor does an agent that breaks under the last one take back what the policy has claimed: files are read from
        outside. Raises AgentBrokeDesktop from any other one, for there would be no next step.
        """
        wanted = self._config.screenshots
        whole = wanted == "all" or (wanted == "some" and self._work.token % WHOLE_ONE_IN == 0)
        if wanted == "none" or (self._config.sight.picture and wanted != "all") or (ending is None and not whole):
            return None
        try:
            return await self._scene.screenshot()
        except GuestRefused:
            return None
        except AgentBrokeDesktop:
            if ending is None:
                raise
            return None

    async def _record(
        self,
        prompt: Prompt,
        answer: Answer,
        *,
        action: Action | RefusedAnswer,
        result: str,
        picture: Any,
        timing: dict[str, float],
    ) -> None:
        stored, shown = await self._recorder.picture(picture), list[PictureRef]()
        if prompt.picture:
            shown = [await self._recorder.shown(prompt.picture, answer.picture_at, self._shown)]
            self._shown[shown[0].digest] = shown[0]
        refused = isinstance(action, RefusedAnswer)
        payload = StepPayload(
            prompt_ids=list(answer.prompt_ids),
            response_ids=answer.response_ids,
            logprobs=answer.logprobs,
            spans=answer.spans,
            temperature=self._work.sampling.temperature,
            observation=prompt.user,
            response=answer.text,
            action=None if refused else msgspec.json.encode(action).decode(),
            refusal=action.reason if isinstance(action, RefusedAnswer) else None,
            result=result,
            screenshot=stored,
            by=answer.by,
            pictures=shown,
            **timing,
        )
        kept = await self._recorder.step(payload, well_formed=not refused)
        self._steps.append(msgspec.structs.replace(kept, remembered=self._scene.remembered))
