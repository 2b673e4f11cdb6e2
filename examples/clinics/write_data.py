"""Write what three clinics would have: `python examples/clinics/write_data.py DIR`.

DIR gets north.csv, south.csv and west.csv, each with its own order of columns, one with a column that nobody asked for,
and test.csv. They hold the tumours of scikit-learn, shuffled with a fixed public seed.
"""

import csv
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer

COLUMNS = ("radius", "texture", "perimeter", "area", "smoothness", "compactness", "concavity", "concave points")
COLUMNS += ("symmetry", "fractal dimension")
RECORDS = 144  # of each clinic


def main(folder: Path) -> None:
    """Write the four files."""
    bunch = load_breast_cancer()
    order = np.random.default_rng(0).permutation(len(bunch.data))
    largest = bunch.data[order, 20:]  # of each measure, the mean of the three largest nuclei of an image
    words = np.array(["malignant", "benign"])[bunch.target[order]]
    records = [
        {"patient": number, "diagnosis": word, **dict(zip(COLUMNS, row, strict=True))}
        for number, (row, word) in enumerate(zip(largest, words, strict=True))
    ]
    folder.mkdir(parents=True, exist_ok=True)
    headers = {
        "north": [*COLUMNS, "diagnosis"],
        "south": ["diagnosis", *sorted(COLUMNS)],
        "west": ["patient", *reversed(COLUMNS), "diagnosis"],
    }
    for clinic, (name, header) in enumerate(headers.items()):
        write(folder / f"{name}.csv", header, records[clinic * RECORDS : (clinic + 1) * RECORDS])
    write(folder / "test.csv", headers["north"], records[3 * RECORDS :])


def write(file: Path, header: list[str], records: list[dict]) -> None:
    """One CSV file."""
    with file.open("w", newline="", encoding="utf-8") as opened:
        writer = csv.DictWriter(opened, header, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(records)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "clinics-data"))
