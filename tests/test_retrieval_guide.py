"""The guide on retrieval: its code reads the published lists."""

import csv
import pathlib
import re

from supcon_tf import data
from tests.data.test_folder import write_image

GUIDE = pathlib.Path(__file__).parent.parent / "docs" / "guides"
CUB = {
    "image_class_labels.txt": "1 1\n2 100\n3 101\n4 200\n",
    "images.txt": "".join(f"{i} 00{i}.A_b/A_000{i}.jpg\n" for i in range(1, 5)),
}
SOP = {
    f"Ebay_{split}.txt": "image_id class_id super_class_id path\n"
    f"{first} {first} 1 bicycle_final/{first}_0.JPG\n"
    f"{first + 1} {first} 1 bicycle_final/{first}_1.JPG\n"
    for split, first in (("train", 1), ("test", 11319))
}
IN_SHOP = {
    "Eval/list_eval_partition.txt": "3\n"
    "image_name item_id evaluation_status\n"
    "img/WOMEN/Dresses/id_00000002/02_1_front.jpg id_00000002 train\n"
    "img/WOMEN/Dresses/id_00000007/01_1_front.jpg id_00000007 query\n"
    "img/WOMEN/Dresses/id_00000007/02_3_back.jpg  id_00000007 gallery\n"
}


def test_its_code_reads_the_published_lists(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder, lists in (
        ("CUB_200_2011", CUB),
        ("sop", SOP),
        ("inshop", IN_SHOP),
    ):
        for name, text in lists.items():
            path = tmp_path / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    (code,) = re.findall(
        r"```python\n(.*?)```", (GUIDE / "retrieval.md").read_text(), re.DOTALL
    )
    names = {}
    exec(code, names)  # writes cub200.csv
    for name in ("sop", "inshop"):
        examples = names[f"read_{name}"](tmp_path / name)
        names["write_manifest"](f"{name}.csv", examples)
    for name, train, test in (
        ("cub200", {"1", "100"}, {"101", "200"}),
        ("sop", {"1"}, {"11319"}),
        ("inshop", {"id_00000002"}, {"id_00000007"}),
    ):
        with open(f"{name}.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        for split, classes in (("train", train), ("test", test)):
            labels = {row["label"] for row in rows if row["split"] == split}
            assert labels == classes, name
    for row in rows:  # of the last list, as a data set
        write_image(pathlib.Path(row["path"]))
    source = data.load("manifest", "test", f"{name}.csv")
    assert source.class_names == (*test,) and source.num_examples == 2
