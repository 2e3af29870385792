#!/usr/bin/env python3
"""The rules from help pages to sentence pairs, one by one."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts/data"))

import text_pairs
import text_sources
from text_pairs import Pair


class HelpPages(unittest.TestCase):
    def blocks(self, page):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "usr/share/libreoffice/help/fr/text/swriter/a.html"
            file.parent.mkdir(parents=True)
            file.write_text(page, "utf-8")
            return text_sources.help_blocks(Path(folder), "fr")

    def test_takes_marked_paragraphs_and_headings_and_counts_repeated_ids(self):
        page = '<h1 id="hd_id1">A</h1><p class="x" id="par_id2">B</p><p id="par_id2">C</p><p id="other">D</p><p>E</p><pre id="par_id3">F</pre>'
        path = "text/swriter/a.html"
        self.assertEqual(self.blocks(page), {(path, "hd_id1", 0): "A", (path, "par_id2", 0): "B", (path, "par_id2", 1): "C"})

    def test_cuts_mac_wording_with_nested_spans(self):
        page = '<p id="par_id1">Press <span id="a"><span hidden="true" class="MAC"><span>Command</span></span><span>Ctrl</span></span>+F.</p>'
        self.assertEqual(list(self.blocks(page).values()), ["Press Ctrl+F."])

    def test_decodes_entities_drops_soft_hyphens_collapses_white_space(self):
        page = '<p id="par_id1">a &amp;\n  b&nbsp;c co\u00adop <b>&lt;d&gt;</b></p>'
        self.assertEqual(list(self.blocks(page).values()), ["a & b c coop <d>"])


class Sentences(unittest.TestCase):
    def test_split_after_end_marks_before_a_capital(self):
        self.assertEqual(text_pairs.sentences("One. Two! Three? (Four.) five. Six"), ["One.", "Two!", "Three?", "(Four.) five.", "Six"])

    def test_not_after_abbreviations(self):
        self.assertEqual(text_pairs.sentences("See e.g. Table 1, etc. End. Fin"), ["See e.g. Table 1, etc. End.", "Fin"])

    def test_unequal_counts_keep_the_block_whole(self):
        pairs = text_pairs.pairs_of_blocks({("f", "1", 0): "One. Two."}, {("f", "1", 0): "Un, deux."})
        self.assertEqual(pairs, [Pair("f", "One. Two.", "Un, deux.")])
        pairs = text_pairs.pairs_of_blocks({("f", "1", 0): "One. Two."}, {("f", "1", 0): "Un. Deux."})
        self.assertEqual(pairs, [Pair("f", "One.", "Un."), Pair("f", "Two.", "Deux.")])


class Usable(unittest.TestCase):
    def test_drops_what_the_rules_name(self):
        self.assertTrue(text_pairs.usable("Insert a table", "Insérer une table"))
        for source, target in [
            ("", "a"), ("a", ""), ("Basic", "Basic"), ("A = 1234 + 5", "B = 1234 + 5"), ("a" * 1001, "b" * 900),
            ("Insert a table", "Oui"), ("Insert a table", "Insérer une table " * 3),
        ]:  # fmt: skip
            self.assertFalse(text_pairs.usable(source, target), (source, target))
        self.assertTrue(text_pairs.usable("Yes", "Certainement"), "short sources may have any ratio")


class Split(unittest.TestCase):
    def test_by_file_without_sources_known_from_training_test_smallest_digests_first(self):
        held = next(f"f{i}" for i in range(1000) if text_pairs.held_out(f"f{i}"))
        free = next(f"f{i}" for i in range(1000) if not text_pairs.held_out(f"f{i}"))
        pairs = [Pair(free, "known to training too", "x"), Pair(free, "known to training too", "y"), Pair(held, "known to training too", "z")]
        pairs += [Pair(held, f"a sentence number {i}", "t") for i in range(1100)] + [Pair(held, "too short", "t")]
        parts = text_pairs.split(pairs)
        self.assertEqual(parts["train"], [Pair(free, "known to training too", "x")])
        self.assertEqual((len(parts["test"]), len(parts["valid"])), (500, 500))
        digests = [text_pairs._md5(pair.source) for pair in parts["test"] + parts["valid"]]
        self.assertEqual(digests, sorted(digests))
        self.assertNotIn("too short", [pair.source for pair in parts["test"] + parts["valid"]])


if __name__ == "__main__":
    unittest.main()
