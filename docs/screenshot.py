"""Takes the picture of the training screen that the README shows: of a real run, in a real pseudo-terminal.

    python docs/screenshot.py                             # writes docs/screen.svg
    python docs/screenshot.py --output mine.svg -- python my_training.py

What the program draws goes through a terminal emulator (pyte), and its cells become an SVG: letters as text,
lines, blocks and braille dots as shapes, so that they meet whatever the font is.
"""

import argparse
import collections
import contextlib
import html
import os
import re
import sys
import tempfile
import time
import typing
import unicodedata
from pathlib import Path

import pyte
from pyte.graphics import FG_BG_256

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "python" / "screen"))

from terminal import Screen, Terminal

HERE = Path(__file__).resolve().parent
DIGITS = [sys.executable, str(HERE.parent / "examples" / "train_digits.py"), "--screen", "--pace", "0.005"]

WIDTH, HEIGHT = 8, 17  # of a cell, in pixels
FONT = 13.33  # a letter of most monospace fonts is 0.6 of it wide
MARGIN = 10
TEXT, GROUND = "#d5d9e0", "#1b1e24"
PALETTE = {
    "black": "#2b3038",
    "red": "#ef6b73",
    "green": "#8fc96f",
    "brown": "#e5b567",
    "blue": "#6aa9f7",
    "magenta": "#c58af9",
    "cyan": "#5cc7d6",
    "white": "#c3c8d1",
    "brightblack": "#7b828f",
    "brightred": "#ff8b92",
    "brightgreen": "#abe08b",
    "brightbrown": "#ffd08a",
    "brightblue": "#8dc1ff",
    "brightmagenta": "#d9aaff",
    "brightcyan": "#83e0ec",
    "brightwhite": "#ffffff",
}
BY_NUMBER = dict(zip(FG_BG_256, PALETTE, strict=False))


class Faint(Screen):
    """A terminal of the emulator that knows faint text: blinking, which nobody uses, stands for it."""

    def select_graphic_rendition(self, *attributes, **how):
        stand_in = {(2,): (5,), (22,): (22, 25)}
        super().select_graphic_rendition(*stand_in.get(attributes, attributes), **how)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=HERE / "screen.svg")
    parser.add_argument("--columns", type=int, default=110)
    parser.add_argument("--lines", type=int, default=32)
    parser.add_argument("--after", type=float, default=20, help="seconds until the picture is taken")
    parser.add_argument("--keys", default="", help="typed a second before")
    parser.add_argument("command", nargs="*", help="what is run; default: examples/train_digits.py")
    options = parser.parse_args()
    options.output = options.output.resolve()
    with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory):
        command = options.command or [*DIGITS, "--steps", "3000"]
        screen = photograph(command, options.columns, options.lines, options.after, options.keys)
        hide(screen, Path.cwd())
    options.output.write_text(svg(screen))
    print(f"{options.output}: {options.columns} x {options.lines} cells")


def photograph(command, columns, lines, after, keys):
    """The emulator's screen as it was `after` seconds into the program."""
    with Terminal(command, columns, lines) as terminal:
        terminal.screen = Faint(columns, lines)
        terminal.stream = pyte.ByteStream(terminal.screen)
        begin = time.monotonic()
        for until, typed in [(after - 1, keys), (after, "")]:
            while time.monotonic() - begin < until:
                terminal.read()
            terminal.type(typed)
        if not terminal.is_open:
            raise SystemExit(f"the program ended before its picture was taken:\n{terminal.printed}")
        return terminal.screen


def hide(screen, directory):
    """Shows the run by its path below the directory: where that lies is of no interest, and new each time."""
    runs = [str(events.parent.relative_to(directory)) for events in directory.rglob("events.jsonl")]
    shown = re.compile(re.escape(f"{directory.parent}{os.sep}") + r"\S+")
    for y in range(screen.lines):
        cells = [screen.buffer[y][x] for x in range(screen.columns)]
        found = shown.search("".join(cell.data[:1] or " " for cell in cells))
        if found and runs:
            begin, end = found.span()
            # The rule behind it is as much longer.
            cells[begin:end] = [cells[begin]._replace(data=letter) for letter in runs[0]]
            cells += cells[-1:] * (screen.columns - len(cells))
            screen.buffer[y].update(enumerate(cells[: screen.columns]))


def svg(screen):
    """The cells of the emulator as a picture."""
    width, height = screen.columns * WIDTH + 2 * MARGIN, screen.lines * HEIGHT + 2 * MARGIN
    shapes = Shapes()
    rows = [row(shapes, screen.buffer[y], screen.columns, y) for y in range(screen.lines)]
    texts = [text for row in rows for text in row]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" font-size="{FONT}" '
            "font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace\">",
            f'<rect width="{width}" height="{height}" rx="8" fill="{GROUND}"/>',
            f'<g transform="translate({MARGIN} {MARGIN})">',
            *shapes.paths(),
            *texts,
            "</g>",
            "</svg>\n",
        ]
    )


def row(shapes, cells, columns, y):
    """Adds the shapes of a row, and returns its texts: neighbours of one style are one element."""
    texts, run = [], []

    def flush():
        if run:
            texts.append(text_element(run, y))
            run.clear()

    for x in range(columns):
        cell = cells[x]
        style = Style.of(cell)
        if style.ground != GROUND:
            shapes.fill(style.ground, x * WIDTH, y * HEIGHT, WIDTH, HEIGHT)
        if not cell.data.strip() or shapes.draw(cell.data, style.ink, x * WIDTH, y * HEIGHT):
            flush()
            continue
        if run and run[-1][2] != style:
            flush()
        run.append((x, cell.data, style))
    flush()
    return texts


class Style(typing.NamedTuple):
    """How a cell looks."""

    ink: str
    ground: str
    bold: bool
    italic: bool
    underlined: bool
    faint: bool

    @classmethod
    def of(cls, cell):
        """As the emulator has it."""
        ink, ground = colour(cell.fg, TEXT), colour(cell.bg, GROUND)
        if cell.reverse:
            ink, ground = ground, ink
        return cls(ink, ground, cell.bold, cell.italics, cell.underscore, cell.blink)


def colour(name, default):
    """What a colour of the emulator looks like."""
    if name == "default":
        return default
    name = BY_NUMBER.get(name, name)
    return PALETTE.get(name) or f"#{name}"


def text_element(run, y):
    """Some letters of one style, stretched over their cells whatever the font is."""
    x, _, style = run[0]
    letters = "".join(data for _, data, _ in run)
    attributes = {
        "x": x * WIDTH,
        "y": y * HEIGHT + 13,
        "textLength": (run[-1][0] - x + 1) * WIDTH,
        "lengthAdjust": "spacingAndGlyphs",
        "fill": style.ink,
        "font-weight": style.bold and "bold",
        "font-style": style.italic and "italic",
        "text-decoration": style.underlined and "underline",
        "opacity": style.faint and 0.6,
    }
    listed = " ".join(f'{name}="{value}"' for name, value in attributes.items() if value is not False)
    return f"<text {listed}>{html.escape(letters)}</text>"


class Shapes:
    """Rectangles and lines, one path for each colour."""

    def __init__(self):
        self.filled = collections.defaultdict(list)
        self.drawn = collections.defaultdict(list)

    def paths(self):
        """All of them."""
        for ink, parts in self.filled.items():
            yield f'<path fill="{ink}" d="{"".join(parts)}"/>'
        for (ink, width), parts in self.drawn.items():
            yield f'<path fill="none" stroke="{ink}" stroke-width="{width}" d="{"".join(parts)}"/>'

    def fill(self, ink, x, y, width, height):
        """A rectangle."""
        self.filled[ink].append(f"M{x:g} {y:g}h{width:g}v{height:g}h{-width:g}z")

    def draw(self, data, ink, x, y):
        """A cell whose character is a shape; says whether it is one."""
        code = ord(data[0])
        if 0x2800 <= code < 0x2900:
            self._dots(code - 0x2800, ink, x, y)
        elif 0x2580 <= code < 0x25A0:
            self._blocks(code, ink, x, y)
        elif 0x2500 <= code < 0x2580:
            self._lines(unicodedata.name(data[0]).split(), ink, x, y)
        else:
            return False
        return True

    def _dots(self, bits, ink, x, y):
        """Braille: two columns of four; the lowest row came later, so its bits are the highest."""
        places = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3)]
        for bit, (column, line) in enumerate(places):
            if bits >> bit & 1:
                self.fill(ink, x + 1 + 4 * column, y + 1.1 + HEIGHT / 4 * line, 2.2, 2.2)

    def _blocks(self, code, ink, x, y):
        half_width, half_height = WIDTH / 2, HEIGHT / 2
        if code == 0x2580:
            self.fill(ink, x, y, WIDTH, half_height)
        elif code <= 0x2588:  # eighths from below
            part = HEIGHT * (code - 0x2580) / 8
            self.fill(ink, x, y + HEIGHT - part, WIDTH, part)
        elif code <= 0x258F:  # eighths from the left
            self.fill(ink, x, y, WIDTH * (0x2590 - code) / 8, HEIGHT)
        elif code == 0x2590:
            self.fill(ink, x + half_width, y, half_width, HEIGHT)
        elif code <= 0x2593:  # light, medium and dark shade
            shade = f"{(code - 0x2590) * 64 - 1:02x}"
            self.fill(ink + shade, x, y, WIDTH, HEIGHT)
        elif code == 0x2594:
            self.fill(ink, x, y, WIDTH, HEIGHT / 8)
        elif code == 0x2595:
            self.fill(ink, x + WIDTH * 7 / 8, y, WIDTH / 8, HEIGHT)
        else:
            words = unicodedata.name(chr(code)).split()
            for line, side in (("UPPER", "LEFT"), ("UPPER", "RIGHT"), ("LOWER", "LEFT"), ("LOWER", "RIGHT")):
                if any(words[i : i + 2] == [line, side] for i in range(len(words))):
                    across = half_width if side == "RIGHT" else 0
                    down = half_height if line == "LOWER" else 0
                    self.fill(ink, x + across, y + down, half_width, half_height)

    def _lines(self, words, ink, x, y):
        """Box drawing, by its name: "BOX DRAWINGS LIGHT DOWN AND RIGHT"."""
        path = self.drawn[ink, 2.4 if "HEAVY" in words else 1.2]
        middle, centre = x + WIDTH / 2, y + HEIGHT / 2
        ends = {
            "LEFT": (x, centre),
            "RIGHT": (x + WIDTH, centre),
            "UP": (middle, y),
            "DOWN": (middle, y + HEIGHT),
        }
        spread = {"HORIZONTAL": ["LEFT", "RIGHT"], "VERTICAL": ["UP", "DOWN"]}
        arms = [ends[arm] for word in words for arm in spread.get(word, [word]) if arm in ends]
        if "ARC" in words:
            (x1, y1), (x2, y2) = arms
            path.append(f"M{x1:g} {y1:g}Q{middle:g} {centre:g} {x2:g} {y2:g}")
            return
        for end_x, end_y in arms:
            path.append(f"M{middle:g} {centre:g}L{end_x:g} {end_y:g}")


if __name__ == "__main__":
    main()
