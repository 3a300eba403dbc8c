"""What a deploy file names, looked up, and what it asks for that can't come true together. Nothing is started."""

from __future__ import annotations

import operator
import os
from pathlib import Path

import msgspec
import psutil

from actors.cluster.config import models
from actors.cluster.config.keys import count
from actors.cluster.config.lanes import Lanes, lanes_of, pool_of, refuse_missing_keys, refuse_undoable
from actors.cluster.config.schema import Deploy
from actors.cluster.config.suggest import blamed
from actors.cluster.runs import ledgers, recordings, trackers, versions
from actors.desktop import memo as memos
from actors.desktop.config import SCREEN_OF_APPS, screen_of
from actors.entropulse.config import FEWEST_TRIAL_TASKS
from actors.sampler.config import SglangConfig, attached_key
from apis import catalogue
from apis.applications import CANVAS
from apis.tasks.registry import family, of_set
from policy import memory, plugins
from policy.architecture import Architecture, read_architecture
from policy.memory import GIB
from policy.pictures import style_of
from policy.tokenizer import Tokenizer
from runtime.errors import ConfigError
from runtime.program import program


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """A deploy file, and what it means by the names in it."""

    deploy: Deploy
    model: str  # folder
    tokenizer: str  # fingerprint
    architecture: Architecture
    lanes: Lanes
    recording: str  # of demonstrations: a file or a run's folder; "" where none is to be taken in
    stop_ids: list[int]
    memory: str = ""  # of each rank of the learner, and what there is
    caution: str = ""  # a line on a recording that shows other observations than the run's desktops


def look_up(deploy: Deploy, *, run_dir: Path, trains: bool, dry: bool = False) -> Named:
    """What `deploy` names, where all that it asks for can come true together.

    The model of a `dry` run, which is only shown, may be elsewhere. Raises ConfigError for the first thing that can't
    come true; of a run that only plays the first three look.
    """
    try:
        catalogue.use(deploy.desktops.apis)
    except ConfigError as error:
        raise ConfigError(f"desktops.apis: {error}") from None
    path, shape = deploy.model.path, deploy.model.shape
    with blamed("model.path: "):
        model = models.planned(path, shape) if dry else models.locate(path)
    recording = ""
    # A run that goes on needs its recording no more once it has taken it in.
    if deploy.demos.source and deploy.demos.count and not ledgers.holds_demos(run_dir, deploy.demos.count):
        with blamed("demos.source: "):
            recording = str(recordings.locate(deploy.demos.source, run_dir.parent))
    if deploy.desktops.memo != "off":
        _memo_file(deploy, run_dir)
    architecture = read_architecture(model)
    # A plan by a shape alone has no tokenizer, and starts nothing that would stop by its ids.
    tokenized = (model / "tokenizer.json").is_file()
    named = Named(
        deploy=deploy,
        model=str(model),
        tokenizer=models.fingerprint(model),
        architecture=architecture,
        lanes=lanes_of(deploy.tasks),
        recording=recording,
        caution=recordings.caution(Path(recording)) if recording else "",
        stop_ids=list(Tokenizer.load(model).stop_ids) if tokenized else [],
    )
    for look in (_prompts, _memo, _demonstrations, *(_TRAINING if trains else ())):
        look(deploy, named)
    return msgspec.structs.replace(named, memory=learner_memory(deploy, architecture)) if trains else named


def _prompts(deploy: Deploy, named: Named) -> None:
    models.refuse_form(Path(named.model), deploy.prompt.format)
    sees = deploy.model.endpoint is not None or style_of(Path(named.model)) is not None
    if deploy.prompt.sight.picture and not sees:
        raise ConfigError(
            f"prompt.observation is {deploy.prompt.observation}, and the model in {named.model} reads text alone: set"
            " it to text, or name a model that sees by model.path"
        )
    _screen(deploy, named)
    if deploy.samplers.attach:
        attached_key(deploy.samplers, os.environ)


def _screen(deploy: Deploy, named: Named) -> None:
    """A screen that is smaller than applications' dialogs is for tasks on pictures alone."""
    fits = all(map(operator.ge, screen_of(deploy.desktops.screen), SCREEN_OF_APPS))
    for lane in ("train", "demo", "eval"):
        tasks = getattr(named.lanes, lane)
        if not fits and (of := next((one for one in tasks if of_set(one) or family(one).apps != (CANVAS,)), None)):
            least = "x".join(map(str, SCREEN_OF_APPS))
            raise ConfigError(
                f"desktops.screen is {deploy.desktops.screen} and tasks.{lane} has {of}, whose application needs"
                f" {least} pixels: set it to {least} or more"
            )


def _memo_file(deploy: Deploy, run_dir: Path) -> None:
    if not deploy.desktops.place:
        memos.stored(memos.file_of(deploy.desktops.memo_file, run_dir.parent))
    demos = deploy.demos
    plays = demos.count and not demos.source and not ledgers.holds_demos(run_dir, demos.count)
    if deploy.desktops.memo == "only" and plays:
        raise ConfigError(
            f"desktops.memo is only and demos.count is {demos.count}: demonstrations are played on desktops; name a"
            " recording by demos.source, or set desktops.memo to on"
        )


def _memo(deploy: Deploy, named: Named) -> None:
    """A memo knows a generated task by all that it holds; what a task set's own files ask for may change by itself."""
    if deploy.desktops.memo == "off":
        return
    for lane in ("train", "demo", "eval"):
        if of := next((task for task in getattr(named.lanes, lane) if of_set(task)), None):
            raise ConfigError(
                f"desktops.memo is {deploy.desktops.memo} and tasks.{lane} has {of}: a memo can't hold tasks of a task"
                " set, which may need a clock or a network; set desktops.memo to off"
            )


def _demonstrations(deploy: Deploy, named: Named) -> None:
    if named.recording:
        recording, vocabulary = Path(named.recording), named.architecture.vocab
        recordings.refuse_unfit(deploy, recording, named.tokenizer, named.lanes.eval, vocabulary)
    refuse_undoable(named.lanes.train, deploy.prompt.action_space, "train")
    refuse_undoable(named.lanes.demo, deploy.prompt.action_space, "demo")
    pool = pool_of(deploy.demos, deploy.prompt.action_space)
    if not deploy.demos.source and deploy.demos.count:
        refuse_missing_keys(pool, os.environ)


def _model(deploy: Deploy, named: Named) -> None:
    if deploy.model.endpoint is not None:
        raise ConfigError(
            f"model.endpoint names a model elsewhere, which can't be trained: evaluate it with  {program()} eval URL"
        )
    longest, context = deploy.sampling.max_new_tokens, named.architecture.context
    if longest >= context:  # no question would have room
        raise ConfigError(
            f"sampling.max_new_tokens is {longest}: it counts from 1 to {context - 1}, for the model of model.path"
            f" takes {context} tokens, prompt and answer together"
        )
    if deploy.learner.rehearsal and named.tokenizer != models.fingerprint(models.bundled()):
        raise ConfigError(
            f"learner.rehearsal is {deploy.learner.rehearsal}: its exercises are the bundled base model's, and"
            f" {named.model} has another vocabulary; leave it at 0"
        )
    deploy.learner.parallel.refuse(named.architecture)


def _trackers(deploy: Deploy, _: Named) -> None:
    trackers.refuse_missing(deploy.run.trackers)


def _idle_phases(deploy: Deploy, named: Named) -> None:
    """A phase that is to run has no tasks to play, or nothing to learn from."""
    lanes = named.lanes
    if not lanes.demo and deploy.demos.count and not deploy.demos.source:
        raise ConfigError(f"tasks.demo is empty, but demos.count asks for {deploy.demos.count}")
    if not lanes.train and deploy.entropulse.total_rl_steps:
        raise ConfigError("tasks.train is empty, but entropulse.total_rl_steps is not 0")
    if not lanes.eval and deploy.evaluation.enabled:
        raise ConfigError("tasks.eval is empty, but evaluation.enabled is true")
    again, cloning = deploy.replay.pulse_demos, deploy.entropulse.bc_steps
    if cloning and not deploy.demos.count:
        nothing = "but demos.count is 0: it says how many demonstrations are recorded, or taken from demos.source"
        raise ConfigError(f"entropulse.bc_steps is {cloning}, {nothing}")
    if again and deploy.entropulse.pulses and not deploy.demos.count:
        nothing = "but demos.count is 0: a pulse has no demonstration to learn (replay.pulse_demos=0 asks for none)"
        raise ConfigError(f"replay.pulse_demos is {again}, {nothing}")
    if deploy.entropulse.pulses and deploy.replay.rehearses_alone and not deploy.learner.rehearsal:
        raise ConfigError(
            "replay.pulse_per_task, replay.pulse_demos and learner.rehearsal are 0: a pulse learns nothing"
        )


def _out_of_reach(deploy: Deploy, _: Named) -> None:
    require, phases, demos = deploy.run.require, deploy.entropulse, deploy.demos
    again = demos.resample_rounds * (demos.resample_bc_steps or phases.bc_steps)
    cloning = phases.bc_steps and phases.bc_steps + again
    for name, wanted, most in (
        ("bc_steps", require.bc_steps, cloning),
        ("rl_steps", require.rl_steps, phases.total_rl_steps),
    ):
        if wanted > most:
            raise ConfigError(f"run.require.{name} is {wanted}: the phases of entropulse have {most} such steps")
    if require.gain_above is not None and not deploy.evaluation.enabled:
        raise ConfigError(
            f"run.require.gain_above is {require.gain_above:g} and evaluation.enabled is false: a gain lies between"
            " evaluation rounds; set evaluation.enabled to true, or run.require.gain_above to null"
        )


def _shared_round(deploy: Deploy, _: Named) -> None:
    """A round is to get a share of RL's episodes from engines that hold one version."""
    if deploy.samplers.single_version and deploy.evaluation.rollout_share:
        raise ConfigError(
            f"evaluation.rollout_share is {deploy.evaluation.rollout_share}, and SGLang holds one version: its rounds"
            " are played while RL draws nothing; set evaluation.rollout_share to 0"
        )


def _collective(deploy: Deploy, _: Named) -> None:
    samplers = deploy.samplers
    if deploy.weight_sync.transport != "collective" or samplers.device == "cpu" or samplers.attach:
        return
    ranks = deploy.learner.parallel.ranks
    taken = [entry for entry in samplers.gpus if any(int(gpu) < ranks for gpu in entry.split(","))]
    if taken and not deploy.learner.place:
        raise ConfigError(
            f"weight_sync.transport is collective, and samplers.gpus holds {taken[0]!r}: the learner computes on the"
            f" first {ranks}, and NCCL has no two ranks on one GPU"
        )
    have = versions.here(samplers.engine)
    if wrong := versions.nccl_misfit(have.learner, have.engine):
        raise ConfigError(f"weight_sync.transport is collective: {wrong}; make sglang-gpu gives both one, or take disk")


def _turns(deploy: Deploy, _: Named) -> None:
    """A card that learner and engine have in turn is one card of one machine."""
    learner, share = deploy.learner, _engine_share(deploy)
    wrong = [f"learner.{name} is set" for name in ("place", "actor_place") if getattr(learner, name)]
    wrong += ["learner.parallel asks for several ranks"] * (learner.parallel.ranks > 1)
    if deploy.samplers.device == "cuda" and not share:
        wrong.append("samplers.engine.options.mem-fraction-static does not say what the engine has of the card")
    if deploy.samplers.turns and wrong:
        raise ConfigError(f"samplers.turns is true, and {wrong[0]}: one rank and one engine take turns on one card")


def _no_effect(deploy: Deploy, named: Named) -> None:
    rl = deploy.learner.rl
    for name, key in ((rl.reward, plugins.REWARD), (rl.loss, plugins.LOSS)):
        if name:
            plugins.load(name, key)
    if rl.entropy_coef and not rl.entropy_target:
        raise ConfigError(
            f"learner.rl.entropy_coef is {rl.entropy_coef:g}: it acts below learner.rl.entropy_target, which is 0"
        )
    if deploy.entropulse.pulse == "trials" and (wrong := _no_trial(deploy, named)):
        raise ConfigError(f"entropulse.pulse is trials: {wrong}")


def _no_trial(deploy: Deploy, named: Named) -> str:
    there = len(named.lanes.train)
    if not deploy.entropulse.rl_steps_per_phase:
        return "entropulse.rl_steps_per_phase says how many steps of RL come between two, and is 0"
    if there < FEWEST_TRIAL_TASKS:
        return f"tasks.train has {count(there, 'task')}, and one is judged on {FEWEST_TRIAL_TASKS} at least"
    return "" if deploy.entropulse.pulse_steps else "entropulse.pulse_steps says how long the pulse is, and is 0"


_TRAINING = (_model, _trackers, _idle_phases, _out_of_reach, _shared_round, _collective, _turns, _no_effect)


def learner_memory(deploy: Deploy, architecture: Architecture) -> str:
    """What each rank holds, in GiB, and of how much, and what an engine holds of its card.

    Raises ConfigError where that is too little.
    """
    learner, turns = deploy.learner, deploy.samplers.turns
    elsewhere = bool(learner.place) and not learner.device_gib
    device = None if elsewhere else round(learner.device_gib * GIB) or device_bytes()
    needs = memory.plan(
        architecture,
        learner.optim(),
        learner.parallel,
        token_budget=learner.token_budget,
        reference=learner.rl.kl_coef > 0,
        device="cuda" if device or learner.place.get("GPU") else "cpu",
        broadcast=deploy.weight_sync.transport != "disk",
    )
    if elsewhere:
        return f"{needs.total / GIB:.2f} GiB, on the machine that learner.place finds: {needs.by_part()}"
    ranks, host, states = learner.parallel.ranks, needs.host, ""
    if device:
        share = _engine_share(deploy)
        engine, spare = round(device * share), memory.WORKSPACE if device > 60 * GIB else memory.SMALL_WORKSPACE
        rests = needs.weights + (0 if learner.dtype == "bfloat16" else needs.optimizer)
        awake = {"engine": engine, "its graphs and workspaces": spare, "learner at rest": rests}
        asleep = {"learner in a step": needs.total, "what the engine keeps": memory.ASLEEP}
        states = memory.states(device, {"engine awake": awake, "engine asleep": asleep}) if share else ""
        room, where = device, f"a device of {device / GIB:.1f} GiB"
        if turns and share:
            room, where = device - memory.ASLEEP, f"{where}, while the engine sleeps"
            host += needs.optimizer + 2 * needs.weights  # at rest; the engine's weights, and those kept to be written
            if sum(awake.values()) > device:
                lower = "lower samplers.engine.options.mem-fraction-static"
                raise ConfigError(f"samplers.turns is true, and the card can't hold this: {states}; {lower}")
            states = f"; in turns, with {host / GIB:.1f} GiB of the host's memory: {states}"
        elif share:
            room = device - engine - spare
            where += f", of which an engine has {share:.0%} and {spare / GIB:.0f} GiB for its graphs"
            states = f"; at once; with samplers.turns {states}"
    else:
        room, where = psutil.virtual_memory().total // ranks, "this machine's memory"
        where += f", shared by {ranks} ranks" if ranks > 1 else ""
    line = f"{needs.total / GIB:.2f} of {room / GIB:.1f} GiB per rank ({where}): {needs.by_part()}"
    if needs.total > room:
        raise ConfigError(
            f"the learner can't fit: {line}; learner.parallel, learner.recompute, learner.token_budget and"
            " learner.lora.rank make it smaller"
        )
    if device and not learner.device_gib and host * ranks > (all_ := psutil.virtual_memory().total):
        raise ConfigError(
            f"what {ranks} ranks hold outside their devices can't fit in this machine's memory of {all_ / GIB:.1f} GiB:"
            f" {line}; learner.lora.rank makes it smaller, and learner.rl.kl_coef 0 needs no reference"
        )
    return line + states


def device_bytes() -> int | None:
    """Memory of this machine's smallest GPU; None without one."""
    ok, printed = versions.answer(["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"])
    try:
        return min(int(line) for line in printed.splitlines()) << 20 if ok else None
    except ValueError:
        return None


def _engine_share(deploy: Deploy) -> float:
    """Of the learner's device: what an engine that is started on it keeps for itself. Raises ConfigError."""
    samplers, name = deploy.samplers, "mem-fraction-static"
    options = samplers.engine.options if isinstance(samplers.engine, SglangConfig) else {}
    try:
        share = float(options.get(name, 0.0))
    except ValueError:
        share = -1.0
    if name in options and not 0 < share < 1:
        raise ConfigError(f"samplers.engine.options.{name} is {options[name]!r}: it is a number above 0 and below 1")
    if samplers.device == "cpu" or samplers.attach or samplers.place or samplers.gpus or deploy.learner.place:
        return 0.0
    return share
