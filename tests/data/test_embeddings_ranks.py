"""Several processes embed a list of texts."""

from __future__ import annotations

from pathlib import Path

from condvne.data.embeddings import embed
from tests.data.test_embeddings import Counting
from tests.processes import found_by

TEXTS = [f"text number {i % 60}" for i in range(75)]
BLOCK = 8  # 60 distinct texts: seven blocks and a half

PROGRAM = f"""
import json, os, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from condvne.data.embeddings import embed
from condvne.ranks import joined
from tests.data.test_embeddings import Counting
from tests.data.test_embeddings_ranks import BLOCK, TEXTS

with joined() as ranks:
    found = {{}}
    for folder in FOLDERS:
        # Only the first rank is told of the folder that is the cache.
        encoder = Counting()
        place = folder if ranks.main else folder + "-elsewhere"
        vectors = embed(TEXTS, encoder, place, block=BLOCK, ranks=ranks).tensor
        found[folder] = [encoder.seen, vectors.tolist()]
open(os.environ["FOUND"] + "." + os.environ["RANK"], "w").write(json.dumps(found))
"""


def test_two_processes_encode_each_text_once_and_go_on_from_what_is_there(tmp_path: Path) -> None:
    alone = embed(TEXTS, Counting(), tmp_path / "alone", block=BLOCK).tensor
    fresh, begun, finished = (tmp_path / name for name in ("fresh", "begun", "alone"))
    stopping = Counting(stop_at="text number 30")
    try:
        embed(TEXTS, stopping, begun, block=BLOCK)
    except KeyboardInterrupt:
        assert len(list(begun.iterdir())) == 3
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.replace("FOLDERS", repr([str(fresh), str(begun), str(finished)])))
    both = found_by(2, script)
    assert len(both) == 2
    for folder, expected in ((fresh, 60), (begun, 60 - 3 * BLOCK), (finished, 0)):
        seen = [text for found in both for text in found[str(folder)][0]]
        assert len(seen) == len(set(seen)) == expected
        assert all(found[str(folder)][1] == alone.tolist() for found in both)
        assert [file.name for file in folder.iterdir()] == [file.name for file in finished.iterdir()]
        assert not Path(f"{folder}-elsewhere").exists()
    assert all(found[str(fresh)][0] for found in both)
