"""What ``--reload`` sees."""

from __future__ import annotations

import os
from pathlib import Path

from tidemill.cli.changes import changed, look


def test_new_changed_and_removed_files_are_seen_and_others_are_not(tmp_path: Path) -> None:
    for name in ("kept.py", "changed.py", "gone.py", "text.txt"):
        (tmp_path / name).write_text("x")
    before = look(str(tmp_path))
    os.utime(tmp_path / "changed.py", ns=(1, 1))
    (tmp_path / "gone.py").unlink()
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "new.py").write_text("x")
    (tmp_path / "text.txt").write_text("other")

    assert changed(before, look(str(tmp_path))) == [
        "changed.py",
        "gone.py",
        os.path.join("package", "new.py"),
    ]


def test_environments_caches_and_hidden_folders_are_left_out(tmp_path: Path) -> None:
    for folder in ("venv/lib", "__pycache__", ".git", "node_modules"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "x.py").write_text("x")
    (tmp_path / "venv" / "pyvenv.cfg").write_text("")
    (tmp_path / "shop.py").write_text("x")

    assert list(look(str(tmp_path))) == ["shop.py"]
