"""Where this checkout is: the folder that has ``bench``, ``docs`` and the rest."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
