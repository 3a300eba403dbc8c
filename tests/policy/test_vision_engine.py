"""Pictures in the embedded engine: logits of transformers, prefixes known by what was seen, refusals."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
import torch

from policy.errors import PictureError
from policy.pictures import PictureStyle, collapsed, picture_ids, placed, placed_in, turned_positions
from policy.tokenizer import PromptPicture, Tokenizer
from tests.policy.engine_tools import Server, engine_server, make_core, response, run_core
from tests.policy.vision_model import png_of, reference_logits, style, tiny_vision_folder


@pytest.fixture(scope="module", params=["qwen", "glm"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_vision_folder(tmp_path_factory.mktemp("seeing") / "model", glm=request.param == "glm")


def prompt_of(parts: Sequence[list[int] | tuple[int, int]], look: PictureStyle) -> list[int]:
    """Ids of text, and pictures of a size."""
    return [i for part in parts for i in (picture_ids(*part, look) if isinstance(part, tuple) else part)]


PARTS = {
    "text": [[7, 8, 9, 300, 21]],
    "one": [[7, 8], (140, 90), [9, 300, 21]],
    "first": [(140, 90), [9, 300, 21]],
    "last": [[9, 300], (200, 56)],
    "two": [[5], (56, 84), [9, 300, 21], (300, 112), [8, 8]],
    "neighbours": [[5], (56, 84), (33, 90), [8, 8]],
}


def pictures_of(parts: Sequence[list[int] | tuple[int, int]]) -> list[bytes]:
    return [png_of(*part, seed=number) for number, part in enumerate(parts) if isinstance(part, tuple)]


@pytest.mark.parametrize("prefill_tokens", [16, 512])
def test_prompts_and_what_is_drawn_after_pictures_are_scored_as_transformers_does(
    folder: Path, prefill_tokens: int
) -> None:
    core, look = make_core(folder, context_length=512, prefill_tokens=prefill_tokens), style(folder)
    runs = [(prompt_of(parts, look), pictures_of(parts)) for parts in PARTS.values()]
    answers = [
        response(str(n), ids, 12, score_at=0, pictures=placed_in(ids, pngs, look)) for n, (ids, pngs) in enumerate(runs)
    ]
    run_core(core, *answers)
    for answer, (ids, pngs) in zip(answers, runs, strict=True):
        theirs = torch.log_softmax(reference_logits(folder, answer.ids, pngs), -1)
        chosen = theirs[range(len(answer.ids) - 1), answer.ids[1:]]
        ours = torch.tensor([*answer.prompt_logprobs, *answer.logprobs])
        assert torch.allclose(chosen, ours, atol=1e-4)
        assert answer.output == theirs[len(ids) - 1 : -1].argmax(-1).tolist()


def test_a_prefix_is_known_by_what_was_seen(folder: Path) -> None:
    core, look = make_core(folder, context_length=512, max_running_requests=1), style(folder)
    ids = prompt_of([[7, 8], (140, 90), [9, 300, 21]], look)
    png, other = png_of(140, 90), png_of(140, 90, seed=1)
    answers = [
        response(str(n), ids, 4, pictures=placed_in(ids, [p], look)) for n, p in enumerate((png, png, other, other))
    ]
    for answer in answers:
        run_core(core, answer)
    first, again, blind, last = answers
    assert (first.cached, again.cached) == (0, len(ids) // 8 * 8)
    assert blind.cached == 0 if ids.index(look.pad_id) < 8 else 8
    assert last.cached == again.cached
    assert first.logprobs == pytest.approx(again.logprobs, abs=1e-5)
    assert first.logprobs != pytest.approx(blind.logprobs, abs=1e-3)
    eyes = core.current.weights.eyes
    assert eyes is not None
    assert eyes.passes == 2


def test_new_weights_keep_the_eyes(folder: Path, tmp_path: Path) -> None:
    core = make_core(folder, context_length=64)
    eyes = core.current.weights.eyes
    core.install(make_core(folder, context_length=64).current.weights, "0.1", "")
    assert core.current.weights.eyes is eyes
    other = tiny_vision_folder(tmp_path / "other", seed=1, glm=style(folder).model_type == "glm4v")
    core.install(make_core(other, context_length=64).current.weights, "0.2", "")
    assert core.current.weights.eyes is not eyes


def test_positions_are_those_of_qwen(folder: Path) -> None:
    look = msgspec.structs.replace(style(folder), least_pixels=3136)
    ids = prompt_of([[5, 6], (84, 56), [8, 8]], look)
    (picture,) = placed_in(ids, [png_of(84, 56)], look)
    assert (picture.at, picture.rows, picture.columns) == (3, 2, 3)
    time, height, width = turned_positions(len(ids), [picture])
    assert time == [0, 1, 2, 3, 3, 3, 3, 3, 3, 6, 7, 8]
    assert height == [0, 1, 2, 3, 3, 3, 4, 4, 4, 6, 7, 8]
    assert width == [0, 1, 2, 3, 4, 5, 3, 4, 5, 6, 7, 8]
    assert collapsed(ids, [picture]) == [5, 6, look.start_id, look.pad_id, look.end_id, 8, 8]
    assert turned_positions(3, []) == [[0, 1, 2]] * 3


@pytest.mark.parametrize(
    ("parts", "pictures"),
    [
        ([[5], (84, 56)], []),
        ([[5], (84, 56)], [(84, 56), (84, 56)]),
        ([[5], (84, 56)], [(112, 56)]),
        ([[5], (84, 56), (84, 56)], [(84, 56)]),
        ([[5]], [(84, 56)]),
    ],
)
def test_pads_without_their_pictures_are_refused(
    folder: Path, parts: list[list[int] | tuple[int, int]], pictures: list[tuple[int, int]]
) -> None:
    look = style(folder)
    with pytest.raises(PictureError):
        placed_in(prompt_of(parts, look), [png_of(*size) for size in pictures], look)


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with engine_server(folder, "--context-length", "512") as running:
        yield running


async def test_a_request_shows_pictures(server: Server, folder: Path) -> None:
    look = style(folder)
    ids, png = prompt_of(PARTS["one"], look), pictures_of(PARTS["one"])[0]
    text = base64.b64encode(png).decode()
    params = {"max_new_tokens": 3, "temperature": 0.0}
    for data in (text, [text], ["data:image/png;base64," + text]):
        answer = await server.generate(input_ids=ids, image_data=data, sampling_params=params, return_logprob=True)
        assert answer["meta_info"]["prompt_tokens"] == len(ids)
    core = make_core(folder, context_length=512)
    same = response("a", ids, 3, pictures=(placed(ids.index(look.pad_id), hashlib.sha256(png).hexdigest(), png, look),))
    run_core(core, same)
    assert answer["output_ids"] == same.output


@pytest.mark.parametrize(
    "data", ["/etc/passwd", "https://example.org/a.png", ["%%%"], [base64.b64encode(b"GIF89a").decode()], [""], 7, None]
)
async def test_a_request_is_refused_by_name(server: Server, folder: Path, data: object) -> None:
    ids = prompt_of(PARTS["one"], style(folder))
    status, answer = await server.post("/generate", {"input_ids": ids, "image_data": data})
    assert status == 400, answer
    assert "image_data" in str(answer)


@pytest.mark.parametrize("first", [True, False])
async def test_a_conversation_shows_a_picture(server: Server, folder: Path, first: bool) -> None:
    tokenizer, png = Tokenizer.load(folder), png_of(140, 90)
    ids = tokenizer.packed_prompt("go", None, [("hi", "yes")], PromptPicture((140, 90), first)).tolist()
    text = base64.b64encode(png).decode()
    params = {"temperature": 0.0, "max_new_tokens": 5, "stop_token_ids": list(tokenizer.stop_ids)}
    plain = await server.generate(input_ids=ids, image_data=text, sampling_params=params)
    parts = [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + text}},
        {"type": "text", "text": "go"},
    ]
    earlier = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]
    asked = [*earlier, {"role": "user", "content": parts if first else parts[::-1]}]
    body = {"messages": asked, "temperature": 0, "max_tokens": 5}
    status, answer = await server.post("/v1/chat/completions", body)
    assert status == 200, answer
    assert answer["choices"][0]["message"]["content"] == plain["text"]
    assert answer["usage"]["prompt_tokens"] == len(ids)
    for wrong in (
        [{"role": "user", "content": parts}, *asked[1:]],
        [*earlier, {"role": "user", "content": [*parts, parts[0]]}],
        [*earlier, {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://example.org"}}]}],
        [
            *earlier,
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,%%"}}]},
        ],
        [
            *earlier,
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]},
        ],
    ):
        status, answer = await server.post("/v1/chat/completions", {"messages": wrong})
        assert status == 400, answer
