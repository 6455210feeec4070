"""Attacks by files that clients send: each is refused with a sentence before it costs memory, time or a process, and
ordinary files are read as ever."""

import io
import os
import pickle
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

import jitney
from jitney.call.errors import BadInput
from jitney.files.arrays import read_npy, read_npy_with_objects, read_npz
from jitney.files.images import TooManyPixels, open_image
from jitney.files.limits import FileLimits, FileRejected, limits
from jitney.files.saved_tensors import read_saved_tensor
from jitney.files.tables import read_frame, read_json_frame
from jitney.testing import load
from jitney.values.convert import convert

np = pytest.importorskip("numpy")
pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
Image = pytest.importorskip("PIL.Image")

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n{} loop\n"


class Run:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def saved(write, *values, **named) -> bytes:
    buffer = io.BytesIO()
    write(buffer, *values, **named)
    return buffer.getvalue()


def picture(kind: str, size=(8, 6)) -> bytes:
    return saved(Image.new("RGB", size, (9, 8, 7)).save, kind)


def header(shape: str, rest: bytes = b"", descr: str = "'<f8'") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + rest


def parquet(**columns) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, store_schema=False)
    return buffer.getvalue()


def repeated(value: str, rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, "int32")), pa.array([value]))


@pytest.fixture(autouse=True)
def own_limits(monkeypatch):
    for name in ("image_formats", "pixels", "expanded"):
        monkeypatch.setattr(limits, name, getattr(FileLimits, name))


@pytest.mark.parametrize("kind", FileLimits.image_formats)
def test_images_of_the_usual_formats_are_opened(kind):
    assert open_image(picture(kind)).size == (8, 6)


def test_a_file_of_postscript_starts_no_program(tmp_path, monkeypatch):
    started = tmp_path / "started"
    ghostscript = tmp_path / "gs"
    ghostscript.write_text(f"#!/bin/sh\ntouch {started}\n")
    ghostscript.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", None)
    said = "no known image format; send one of JPEG, PNG, WEBP, GIF, BMP, TIFF"
    with pytest.raises(BadInput, match=said):
        convert("photo", EPS, Image.Image)
    assert not started.exists()


def test_formats_are_those_that_the_operator_names():
    limits.set("png, bmp", None, None)
    assert open_image(picture("BMP")).size == (8, 6)
    with pytest.raises(FileRejected, match="send one of PNG, BMP"):
        open_image(picture("JPEG"))
    limits.set("HOLOGRAM", None, None)
    with pytest.raises(FileRejected, match="image_formats names 'HOLOGRAM'"):
        open_image(picture("JPEG"))


def test_an_icon_is_not_decoded_to_learn_its_size(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(FileRejected, match="no known image format"):
        open_image(picture("ICO", (64, 64)))
    with pytest.raises(TooManyPixels, match="the server takes at most 100"):
        open_image(picture("PNG", (11, 10)))


def test_half_an_image_is_the_clients_fault():
    with pytest.raises(BadInput, match="cannot be read as Image"):
        convert("photo", picture("PNG", (99, 99))[:-40], Image.Image)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype="float32").reshape(2, 3),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.array(1.5),
        np.zeros((0, 5)),
        np.zeros((3, 0)),
        np.array(["a", "bcd"]),
        np.array([(1, 2.0)], [("é", "i4"), ("b", "f8")]),
        np.array([1, 2], ">i8"),
    ],
    ids=str,
)
def test_arrays_are_read_as_numpy_reads_them(array):
    content = saved(np.save, array)
    back = read_npy(bytearray(content))
    theirs = np.load(io.BytesIO(content))
    assert (back.dtype.itemsize, back.shape, back.flags.writeable) == (theirs.dtype.itemsize, theirs.shape, True)
    assert back.flags.f_contiguous == theirs.flags.f_contiguous
    assert back.tolist() == theirs.tolist()
    assert read_npz(saved(np.savez_compressed, one=array))["one"].tolist() == theirs.tolist()


@pytest.mark.parametrize(
    "shape", ["(-1,)", "(True,)", "(1000000000000,)", "(2,)", "(1000000000, 0)", "(4294967296, 4294967296)"]
)
def test_an_array_is_no_larger_than_the_bytes_that_came(shape):
    with pytest.raises(FileRejected, match=r"its header claims shape .*, and fewer bytes came"):
        read_npy(header(shape, bytes(8)))
    for descr in ("'|V0'", "[('a', '|V0')]"):
        with pytest.raises(FileRejected, match="fewer bytes came"):
            read_npy(header("(1, 1000000000000)", bytes(8), descr))
    assert read_npy(header("(1,)", bytes(8))).tolist() == [0]


def test_objects_in_an_array_are_not_unpickled(tmp_path):
    mark = tmp_path / "mark"
    content = saved(np.save, np.array([Run(mark)], object), allow_pickle=True)
    for attack in (content, saved(np.savez, x=np.array([Run(mark)], object))):
        with pytest.raises(FileRejected, match="nothing that a client sent is unpickled"):
            (read_npz if attack[:2] == b"PK" else read_npy)(attack)
    assert not mark.exists()


def test_objects_are_unpickled_only_by_the_function_that_says_so(tmp_path):
    mark = tmp_path / "mark"
    read_npy_with_objects(saved(np.save, np.array([Run(mark)], object), allow_pickle=True))
    assert mark.exists()
    assert read_npy_with_objects(saved(np.save, np.array([1, 2]))).tolist() == [1, 2]
    with pytest.raises(FileRejected, match="its objects cannot be read"):
        read_npy_with_objects(saved(np.save, np.array([{}], object), allow_pickle=True)[:-9])


def test_an_archive_of_arrays_is_measured_before_it_is_read(monkeypatch):
    limits.set(None, None, 1 << 20)
    content = saved(np.savez_compressed, a=np.zeros(100_000), b=np.zeros(100_000))
    monkeypatch.setattr(zipfile.ZipFile, "read", None)
    with pytest.raises(FileRejected, match="it expands to 1600256 bytes, and the server takes at most 1048576"):
        read_npz(content)


def test_an_archive_that_is_not_compressed_may_be_as_large_as_it_is():
    limits.set(None, None, 1000)
    assert read_npz(saved(np.savez, a=np.zeros(1000)))["a"].shape == (1000,)


def test_broken_and_unusual_archives_are_refused():
    good = saved(np.savez_compressed, a=np.arange(1000))
    at = good.index(b"a.npy") + 20
    bent = saved(lambda file: zipfile.ZipFile(file, "w", zipfile.ZIP_LZMA).writestr("a.npy", b"x" * 99))
    for content in (good[:-30], good[:at] + b"\xff" * 40 + good[at + 40 :], bent, b"PK\x03\x04"):
        with pytest.raises(FileRejected):
            read_npz(content)


def test_a_body_is_read_as_arrays_only_where_a_parameter_is_one(monkeypatch):
    content = bytearray(saved(np.savez, text=np.zeros(3)))

    @jitney.endpoint
    def length(text: list[str]) -> int:
        return len(text)

    @jitney.endpoint
    def size(text: bytes) -> int:
        return len(text)

    @jitney.endpoint
    def keys(arrays: dict[str, np.ndarray]) -> list[str]:
        return list(arrays)

    with load(keys) as model:
        assert model.post(content).body == b'["text"]'
        broken = model.post(content[:-9])
        assert broken.status == 400 and b"the npz file cannot be read" in broken.body
    monkeypatch.setattr("jitney.http.arguments.read_npz", None)
    with load(length) as model:
        assert model.post(content).status == 400
    with load(size) as model:
        assert model.post(content).body == str(len(content)).encode()


def test_ordinary_tables_are_read():
    rows = 100_000
    content = parquet(
        n=np.arange(rows), text=pa.array([f"text {n}" for n in range(rows)]), tags=pa.array([["a", "b"]] * rows)
    )
    frame = read_frame(bytearray(content))
    assert (len(frame), frame["text"][rows - 1], list(frame["tags"][0])) == (rows, f"text {rows - 1}", ["a", "b"])
    assert read_frame("a,b\n1,2\n")["b"].tolist() == read_frame(b"a,b\n1,2\n")["b"].tolist() == [2]


@pytest.mark.parametrize(
    "columns",
    [
        {"text": repeated("x" * 100_000, 10_000)},
        {"lists": pa.ListArray.from_arrays([0, 10_000], repeated("x" * 100_000, 10_000))},
        {"structs": pa.StructArray.from_arrays([repeated("x" * 100_000, 10_000)], ["inside"])},
        {"numbers": np.zeros(10_000_000)},
        {"lists": pa.ListArray.from_arrays([0, 10_000_000], np.zeros(10_000_000))},
        {"rows": pa.ListArray.from_arrays(np.arange(1_000_001, dtype="int32"), np.zeros(1_000_000, "int8"))},
        {"structs": pa.StructArray.from_arrays([np.zeros(1_000_000, "int8")], ["inside"])},
        {"decimals": pa.array([0]).cast(pa.decimal128(38, 0)).take(np.zeros(1_000_000, "int32"))},
    ],
    ids=["texts", "lists of texts", "texts inside", "numbers", "a long list", "lists", "structures", "decimals"],
)
def test_a_small_table_that_stands_for_a_large_one_is_refused(columns, monkeypatch):
    content = parquet(**columns)
    assert len(content) < 50_000
    monkeypatch.setattr(pd, "read_parquet", None)
    usual, counted = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(counted)
    with pytest.raises(BadInput, match=r"it expands to \d+ bytes, and the server takes at most 67108864"):
        convert("table", content, pd.DataFrame)
    pa.set_memory_pool(usual)
    assert counted.max_memory() < 4 << 20


def test_a_table_has_no_more_columns_than_can_be_read():
    wide = ",".join(["a"] * 20_000)
    for content in (wide, wide.encode(), '\n \n"a\n"' + wide, parquet(**{str(n): [1] for n in range(20_000)})):
        with pytest.raises(FileRejected, match="it has 20000 columns, and at most 10000 are read"):
            read_frame(content)
    with pytest.raises(FileRejected, match="its first row has 20000 values, and there are 1 columns"):
        read_frame(f"a\n{wide}")
    with pytest.raises(BadInput, match="it has 20000 columns"):
        convert("table", [dict.fromkeys(map(str, range(20_000)))], pd.DataFrame)
    with pytest.raises(FileRejected, match="it has 20000 columns"):
        read_json_frame({"columns": ["a"] * 20_000, "data": []}, "split", True)


def test_columns_of_one_name_are_counted_before_pandas_renames_them():
    names = ["same"] * 1001
    assert read_frame(",".join(names)).shape == (0, 1001)
    with pytest.raises(FileRejected, match="1001 of its 1002 columns have the name of another one"):
        read_frame(",".join([*names, "same"]))
    assert read_frame("," * 2000).shape == (0, 2001), "columns without names have numbers"


@pytest.mark.parametrize(
    "table",
    [
        [{str(n): 1} for n in range(5000)],
        {str(n): {str(n): 1} for n in range(5000)},
        [list(range(5000)), *[[1]] * 5000],
        {str(n): [1] * (1 + 5000 * (n == 0)) for n in range(5000)},
    ],
    ids=["rows", "columns", "lists of rows", "lists of columns"],
)
def test_json_of_few_cells_makes_no_frame_of_many(table):
    with pytest.raises(BadInput, match=r"it expands to 2000\d+ bytes"):
        convert("table", table, pd.DataFrame)
    with pytest.raises(FileRejected, match=r"it expands to 2000\d+ bytes"):
        read_json_frame(table, "columns", True)
    limits.set(None, None, 1)
    assert convert("table", [{"a": 1, "b": 2}] * 2, pd.DataFrame).shape == (2, 2)


@pytest.mark.parametrize("texts", [["x" * 20_000, *["y"] * 5000], [[1, "x" * 20_000], *[[2, "y"]] * 2500]])
def test_one_long_text_makes_no_array_of_long_texts(texts):
    with pytest.raises(BadInput, match=r"it expands to 400\d+ bytes"):
        convert("words", texts, np.ndarray)
    assert convert("words", [["a", "bcd"]], np.ndarray).tolist() == [["a", "bcd"]]


def test_a_footer_that_lies_is_not_believed():
    buffer = io.BytesIO()
    pq.write_table(pa.table({"text": ["x" * 80_000_000]}), buffer, compression="zstd", use_dictionary=False)
    size = pq.ParquetFile(buffer).metadata.row_group(0).column(0).total_uncompressed_size
    honest = bytes(2 * size >> shift & 127 | 128 * (shift < 21) for shift in (0, 7, 14, 21))
    content = buffer.getvalue().replace(honest, b"\xc8\x80\x80\x00")
    assert pq.ParquetFile(io.BytesIO(content)).metadata.row_group(0).column(0).total_uncompressed_size == 36
    with pytest.raises(FileRejected, match="it expands to 8000"):
        read_frame(content)


def test_a_broken_table_is_refused_and_so_is_a_pyarrow_that_unpickles(monkeypatch):
    content = parquet(n=np.arange(3))
    with pytest.raises(FileRejected, match="the Parquet file cannot be read"):
        read_frame(content[:-9])
    monkeypatch.setattr(pa, "__version__", "14.0.0")
    with pytest.raises(FileRejected, match=r"pyarrow 14\.0\.0 unpickles"):
        read_frame(content)


class Tensor:
    def __init__(self, elements: int) -> None:
        self.numel, self.element_size = (lambda: elements), (lambda: 4)


def torch(monkeypatch, loaded):
    """A torch that notes how it is asked to load."""
    asked = []

    def load(file, map_location=None, *, weights_only=False):
        asked.append((map_location, weights_only))
        if isinstance(loaded, Exception):
            raise loaded
        return loaded

    module = SimpleNamespace(__version__="2.6.0", load=load, is_tensor=lambda value: isinstance(value, Tensor))
    monkeypatch.setitem(sys.modules, "torch", module)
    return asked


def archive(**members: bytes) -> bytes:
    return saved(lambda file: [zipfile.ZipFile(file, "a").writestr(f"x/{name}.pkl", members[name]) for name in members])


def test_a_saved_tensor_is_loaded_as_weights_only(monkeypatch):
    tensor = Tensor(3)
    asked = torch(monkeypatch, tensor)
    assert read_saved_tensor(archive(data=b""), "cuda:0") is tensor
    assert asked == [("cuda:0", True)]


@pytest.mark.parametrize(
    ("content", "loaded", "said"),
    [
        (pickle.dumps([]), None, "no file of torch 1.6 or newer: send one tensor as torch.save writes it"),
        (archive(data=b"", constants=b""), None, "a TorchScript archive"),
        (archive(data=b""), pickle.UnpicklingError("posix.system"), "it holds more than a tensor"),
        (archive(data=b""), {"a": 1}, "it holds a dict"),
        (archive(data=b""), Tensor(1 << 40), "it expands to 4398046511104 bytes"),
    ],
)
def test_what_is_no_saved_tensor_is_refused(monkeypatch, content, loaded, said):
    torch(monkeypatch, loaded)
    with pytest.raises(FileRejected, match=said):
        read_saved_tensor(content, "cpu")


def test_an_old_torch_reads_no_clients_file(monkeypatch):
    asked = torch(monkeypatch, Tensor(3))
    monkeypatch.setattr(sys.modules["torch"], "load", lambda file, map_location: asked.append(file))
    with pytest.raises(FileRejected, match=r"cannot read a client's file safely: the server needs 1\.13 or newer"):
        read_saved_tensor(archive(data=b""), "cpu")
    assert asked == []
