"""Readers of the texts inside Debian packages: LibreOffice help pages, SWORD Bible modules, the CMU pronouncing dictionary.

Each reader takes the root of an unpacked package and yields plain text in a fixed order.
"""

import html
import re
import struct
import zlib

_SPAN = re.compile(r"<span\b[^>]*>|</span>")
_MAC_SPAN = re.compile(r'<span\b[^>]*\bclass="MAC"[^>]*>')
_BLOCK = re.compile(r'<(p|h[1-6])\b[^>]*\bid="((?:par_id|hd_id|bm_id)[^"]*)"[^>]*>(.*?)</\1>', re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_SWORD_ASIDE = re.compile(r"<(note|title|rdg)\b[^>]*?(?<!/)>.*?</\1>", re.DOTALL)
_CMU_ENTRY = re.compile(r'\("([^"]*)" \S+ \((.*)\)\)\s*$')
_CMU_SYLLABLE = re.compile(r"\(\(([^()]*)\) \d\)")


def _one_line(markup):
    return " ".join(html.unescape(_TAG.sub("", markup)).replace("\u00ad", "").split())


def without_mac_wording(page):
    """Cuts the hidden wording for Mac keyboards, nested spans included; it would read "CommandCtrl" otherwise."""
    kept, position = [], 0
    for start in _MAC_SPAN.finditer(page):
        if start.start() < position:
            continue  # inside a span that is cut already
        kept.append(page[position : start.start()])
        depth, position = 1, start.end()
        while depth:
            tag = _SPAN.search(page, position)
            if tag is None:
                raise ValueError("a Mac span does not end")
            depth += -1 if tag.group().startswith("</") else 1
            position = tag.end()
    return "".join(kept) + page[position:]


def help_blocks(root, language):
    """{(page path, block id, occurrence): text} of the LibreOffice help in one language."""
    folder = root / "usr/share/libreoffice/help" / language
    blocks = {}
    for file in sorted(folder.glob("text/**/*.html")):
        path = file.relative_to(folder).as_posix()
        occurrences = {}
        for _, block_id, markup in _BLOCK.findall(without_mac_wording(file.read_text("utf-8"))):
            occurrence = occurrences.get(block_id, 0)
            occurrences[block_id] = occurrence + 1
            blocks[path, block_id, occurrence] = _one_line(markup)
    return blocks


def sword_slots(root, module):
    """Yields (testament, book number from 1, text) for every slot of a SWORD zText module, empty ones included."""
    for testament in ("ot", "nt"):
        base = root / "usr/share/sword/modules/texts/ztext" / module / testament
        sizes, slots, packed = (base.with_suffix(suffix).read_bytes() for suffix in (".bzs", ".bzv", ".bzz"))
        books = [zlib.decompress(packed[begin : begin + size]) for begin, size, _ in struct.iter_unpack("<III", sizes)]
        for book, begin, size in struct.iter_unpack("<IIH", slots):
            markup = books[book][begin : begin + size].decode("utf-8") if size else ""
            yield testament, book, _one_line(_SWORD_ASIDE.sub("", markup).replace("¶", ""))


def verse_pairs(root, source_module, target_module):
    """[(testament, book number, source, target)] where both modules fill the slot; they share one verse order."""
    pairs = zip(sword_slots(root, source_module), sword_slots(root, target_module), strict=True)
    return [(*source, target[2]) for source, target in pairs if source[2] and target[2]]


def cmu_words(root):
    """[(word, phones)] for words of letters and apostrophe; stress dropped, syllables joined, first entry of a word kept."""
    words = {}
    with open(root / "usr/share/festival/dicts/cmu/cmudict-0.4.out", encoding="latin-1") as lines:
        next(lines)  # a tag
        for line in lines:
            entry = _CMU_ENTRY.match(line)
            if entry and re.fullmatch(r"[a-z']+", entry.group(1)):
                words.setdefault(entry.group(1), " ".join(_CMU_SYLLABLE.findall(entry.group(2))))
    return list(words.items())
