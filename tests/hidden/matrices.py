"""Hidden tests of chapter 01: a matrix by hand, softmax, linear maps, Xavier's start."""

import math

import numpy as np

from manyheads import matrices
from tests.hidden.break_it import BreakIt
from tests.hidden.cases import RAISES
from tests.hidden.spec import Example, Exercise

exercise = Exercise("01_matrices", matrices)
grade = exercise.grade

A = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
B = [[1.0, 0.0], [2.0, -1.0], [0.5, 3.0]]


def rows(rng, n, m, scale=2.0):
    """A list of n rows of m numbers."""
    return (rng.normal(size=(n, m)) * scale).tolist()


# --- Matrix ----------------------------------------------------------------------------------------

matrix = exercise.function("Matrix")
PRODUCT = "(Matrix(A) @ Matrix(B)).tolist()"
SUM = "(Matrix(A) + Matrix(B)).tolist()"
SOFTMAX = "Matrix(A).softmax().tolist()"
SIZES = "m = Matrix(A)\n(m.rows, m.cols, m.tolist())"
COPIED = "m = Matrix(A)\nA[0][0] = 99.0\nm.tolist()"
REPLACED = "m = Matrix(A)\nA[0] = [99.0] * len(A[0])\nm.tolist()"
HANDED_OUT = "m = Matrix(A)\nm.tolist()[0][0] = 99.0\nm[0, 0]"
TRANSPOSED = "t = Matrix(A).transpose()\n(t.rows, t.cols, t.tolist())"
SET = "m = Matrix(A)\nm[1, 0] = 7.5\n(m[1, 0], m.tolist())"
NUMBERS = 're.findall(r"-?[0-9]+[.][0-9]+", str(Matrix(A)))'
CUT = '"..." in str(Matrix(A))'

matrix.witness("entries", "C1", SIZES, A=A)
matrix.witness("entries", "C1", COPIED, A=A)
matrix.witness("entries", "C1", REPLACED, A=A)
matrix.witness("entries", "C1", HANDED_OUT, A=A)
matrix.witness("entries", "C2", "Matrix(A)[1, 2]", A=A)
matrix.witness("entries", "C2", SET, A=A)
matrix.witness("entries", "C3", "Matrix([])", options=RAISES)
matrix.witness("entries", "C3", "Matrix(A)", A=[[1.0, 2.0], [3.0]], options=RAISES)
matrix.witness("entries", "C3", "Matrix(A)", A=[[1.0, 2.0], [3.0], [4.0, 5.0]], options=RAISES)
matrix.witness("product", "C4", PRODUCT, A=A, B=B)
matrix.witness("product", "C4", PRODUCT, A=[[1.0, 2.0], [3.0, 4.0]], B=[[0.0, 1.0], [5.0, 2.0]])
matrix.witness("product", "C4", PRODUCT, A=A, B=[[1.0, 2.0], [3.0, 4.0]], options=RAISES)
matrix.witness("arithmetic", "C5", SUM, A=A, B=[[10.0, 20.0, 30.0], [40.0, 50.0, 60.0]])
for B_misfit in ([[1.0, 2.0, 3.0]], [[1.0, 2.0, 3.0]] * 3):
    matrix.witness("arithmetic", "C5", SUM, A=A, B=B_misfit, options=RAISES)
matrix.witness("arithmetic", "C5", "(Matrix(A) / 4).tolist()", A=A)
matrix.witness("arithmetic", "C5", "m = Matrix(A)\nm + m\nm.tolist()", A=A)
matrix.witness("arithmetic", "C5", "m = Matrix(A)\nm / 4\nm.tolist()", A=A)
matrix.witness("arithmetic", "C6", TRANSPOSED, A=A)
matrix.witness("arithmetic", "C6", "m = Matrix(A)\nm.transpose()\nm.tolist()", A=A)
matrix.witness("softmax", "C7", SOFTMAX, A=[[0.0, 1.0], [2.0, 0.0]])
matrix.witness("stability", "C8", SOFTMAX, A=[[4000.0, 3999.0], [0.0, 1.0], [2000.0, 0.0]])
matrix.witness("stability", "C8", SOFTMAX, A=[[-2000.0, -2001.0]])
matrix.witness("text", "C9", NUMBERS, A=[[1.0, -2.34567], [1000.5, 0.0]])
matrix.witness("text", "C9", NUMBERS, A=[[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]])
matrix.witness("text", "C9", CUT, A=[[1.0, 2.0]])
matrix.witness("text", "C9", CUT, A=[[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]])

SPREAD = (
    "W = Matrix.xavier(rows, cols, random.Random(seed)).tolist()\n"
    "np.std(W)"
)  # fmt: skip
MEAN = "np.mean(Matrix.xavier(rows, cols, random.Random(seed)).tolist())"
BELL = (
    "W = np.array(Matrix.xavier(rows, cols, random.Random(seed)).tolist())\n"
    "np.mean(np.abs(W) < W.std())"
)
DIFFERENT = "W = Matrix.xavier(rows, cols, random.Random(seed)).tolist()\nnp.unique(W).size > 0.9 * rows * cols"
SHAPE = "m = Matrix.xavier(rows, cols, random.Random(seed))\n(m.rows, m.cols)"
REPEATED = (
    "one, other = random.Random(seed), random.Random(seed)\n"
    "first = Matrix.xavier(2, 3, one).tolist()\n"
    "(first == Matrix.xavier(2, 3, other).tolist(), first == Matrix.xavier(2, 3, one).tolist(), "
    "first == Matrix.xavier(2, 3, random.Random(seed + 1)).tolist())"
)


def xavier_examples(rows_, cols, seed):
    """The statistics of one draw; the bounds lie six standard errors away."""
    count, std = rows_ * cols, math.sqrt(2 / (rows_ + cols))
    size = {"rows": rows_, "cols": cols, "seed": seed}
    yield Example("C10", SPREAD, size, expect=std, rtol=6 / math.sqrt(2 * count), atol=0, once=True)
    yield Example("C10", MEAN, size, expect=0.0, rtol=0, atol=6 * std / math.sqrt(count), once=True)
    bound = 6 * 0.47 / math.sqrt(count)
    yield Example("C10", BELL, size, expect=0.6827, rtol=0, atol=bound, once=True)
    yield Example("C10", DIFFERENT, size, expect=True, once=True)


matrix.witness("xavier", "C10", SHAPE, rows=2, cols=3, seed=1)
matrix.witness("xavier", "C10", REPEATED, seed=5)
for example in xavier_examples(24, 96, 3):
    matrix.witness(
        "xavier", "C10", example.code, **example.inputs,
        options={"expect": example.expect, "rtol": example.rtol, "atol": example.atol, "once": True},
    )  # fmt: skip


@matrix.hidden("entries")
def _(rng):
    for n, m in ((3, 5), (1, 4), (4, 1), (1, 1)):
        data = rows(rng, n, m)
        yield Example("C1", SIZES, {"A": data})
        yield Example("C1", COPIED, {"A": data})
        yield Example("C1", REPLACED, {"A": data})
        yield Example("C1", HANDED_OUT, {"A": data})
        i, j = int(rng.integers(n)), int(rng.integers(m))
        yield Example("C2", "Matrix(A)[i, j]", {"A": data, "i": i, "j": j})
        code = "m = Matrix(A)\nm[i, j] = value\n(m[i, j], m.tolist())"
        yield Example("C2", code, {"A": data, "i": i, "j": j, "value": float(rng.normal())})
    for bad in ([], [[1.0], [1.0, 2.0]], [[1.0, 2.0], [1.0]], [[1.0, 2.0], [3.0, 4.0], [5.0]]):
        yield Example("C3", "Matrix(A)", {"A": bad}, raises="ValueError")
    yield Example("C3", "Matrix(A)", {"A": [[1.0, 2.0], [], [3.0, 4.0]]}, raises="ValueError")


@matrix.hidden("product")
def _(rng):
    for n, k, m in ((3, 4, 5), (5, 2, 3), (1, 6, 1), (4, 1, 2), (3, 3, 3)):
        yield Example("C4", PRODUCT, {"A": rows(rng, n, k), "B": rows(rng, k, m)})
    code = "a, b = Matrix(A), Matrix(B)\nc = a @ b\n(c.rows, c.cols, a.tolist(), b.tolist())"
    yield Example("C4", code, {"A": rows(rng, 3, 4), "B": rows(rng, 4, 2)})
    chain = "(Matrix(A) @ Matrix(B) @ Matrix(C)).tolist()"
    parts = {"A": rows(rng, 2, 3), "B": rows(rng, 3, 4), "C": rows(rng, 4, 2)}
    yield Example("C4", chain, parts)
    for a, b in (((2, 3), (2, 3)), ((3, 2), (3, 4)), ((2, 1), (3, 2)), ((2, 4), (3, 2))):
        inputs = {"A": rows(rng, *a), "B": rows(rng, *b)}
        yield Example("C4", PRODUCT, inputs, raises="ValueError")


@matrix.hidden("arithmetic")
def _(rng):
    for n, m in ((3, 5), (4, 4), (1, 3)):
        a, b = rows(rng, n, m), rows(rng, n, m)
        yield Example("C5", SUM, {"A": a, "B": b})
        yield Example("C6", TRANSPOSED, {"A": a})
        yield Example("C5", "(Matrix(A) / s).tolist()", {"A": a, "s": float(rng.normal() + 3)})
    yield Example("C5", "(Matrix(A) / s).tolist()", {"A": [[1, 2], [3, 4]], "s": 3})
    code = "a, b = Matrix(A), Matrix(B)\n(a + b)[0, 0] = 50.0\n(a / 2)[0, 0] = 50.0\n(a.tolist(), b.tolist())"
    yield Example("C5", code, {"A": rows(rng, 2, 3), "B": rows(rng, 2, 3)})
    code = "a = Matrix(A)\nt = a.transpose()\nt[0, 1] = 50.0\na.tolist()"
    yield Example("C6", code, {"A": rows(rng, 3, 3)})
    for a, b in (
        ((2, 3), (3, 2)),
        ((2, 3), (1, 3)),
        ((2, 3), (2, 1)),
        ((1, 1), (2, 2)),
        ((3, 2), (2, 2)),
    ):
        inputs = {"A": rows(rng, *a), "B": rows(rng, *b)}
        yield Example("C5", SUM, inputs, raises="ValueError")


@matrix.hidden("softmax")
def _(rng):
    for n, m in ((3, 5), (4, 4), (5, 1), (1, 6)):
        yield Example("C7", SOFTMAX, {"A": rows(rng, n, m)})
    code = "a = Matrix(A)\ns = a.softmax()\n(a.tolist(), s.rows, s.cols)"
    yield Example("C7", code, {"A": rows(rng, 2, 5)})


@matrix.hidden("stability")
def _(rng):
    data = rows(rng, 3, 5)
    data[1] = [value + 5000 for value in data[1]]
    yield Example("C8", SOFTMAX, {"A": data})
    yield Example(
        "C8", SOFTMAX, {"A": [[value - 3000 for value in row] for row in rows(rng, 2, 4)]}
    )
    yield Example("C8", SOFTMAX, {"A": [[1e6, -1e6, 1e6 - 1], [0.5, -0.5, 1.5]]})


@matrix.hidden("text")
def _(rng):
    for n, m in ((2, 3), (5, 5), (6, 5), (5, 6), (9, 8), (1, 7)):
        data = [[round(value, 3) + 0.0004 for value in row] for row in rows(rng, n, m, 20.0)]
        yield Example("C9", NUMBERS, {"A": data})
        yield Example("C9", CUT, {"A": data})
    yield Example("C9", NUMBERS, {"A": [[1, 2], [3, 4]]})


@matrix.hidden("xavier")
def _(rng):
    seed = int(rng.integers(1 << 30))
    yield Example("C10", SHAPE, {"rows": 4, "cols": 7, "seed": seed})
    yield Example("C10", REPEATED, {"seed": seed})
    yield from xavier_examples(24, 96, seed)
    yield from xavier_examples(96, 24, seed + 1)


@matrix.misconception(
    "A02",
    "Inner sizes that differ give numbers instead of a ValueError: zip, for one, stops at the "
    "shorter row.",
    "__matmul__",
)
def zip_truncates(self, other):
    columns = list(zip(*other.tolist()))
    return Matrix([[sum(a * b for a, b in zip(r, c)) for c in columns] for r in self.tolist()])


@matrix.misconception(
    "X20", "You multiply entry by entry; the matrix product sums over the inner axis.", "__matmul__"
)
def entrywise_product(self, other):
    if (self.rows, self.cols) != (other.rows, other.cols):
        raise ValueError("sizes")
    return Matrix([[a * b for a, b in zip(r, s)] for r, s in zip(self.tolist(), other.tolist())])


@matrix.misconception(
    "X20",
    "You multiply entry by entry, as far as zip finds partners; the matrix product sums over the inner axis.",
    "__matmul__",
)
def entrywise_cut(self, other):
    if self.cols != other.rows:
        raise ValueError("sizes")
    return Matrix([[a * b for a, b in zip(r, s)] for r, s in zip(self.tolist(), other.tolist())])


@matrix.misconception(
    "A48",
    "The sum of one entry goes on into the next: set it to 0 before every entry.",
    "__matmul__",
)
def sum_goes_on(self, other):
    if self.cols != other.rows:
        raise ValueError("sizes")
    total, result = 0.0, []
    for i in range(self.rows):
        result.append([])
        for j in range(other.cols):
            for k in range(self.cols):
                total += self[i, k] * other[k, j]
            result[i].append(total)
    return Matrix(result)


@matrix.misconception(
    "X21", "Rows meet rows: the second matrix is used as if it were transposed.", "__matmul__"
)
def rows_by_rows(self, other):
    if self.cols != other.rows:
        raise ValueError("sizes")
    other = other.tolist() if other.rows == other.cols else list(zip(*other.tolist()))
    return Matrix([[sum(a * b for a, b in zip(r, s)) for s in other] for r in self.tolist()])


@matrix.misconception(
    "A48", "Only the last product of each entry is kept: add with +=.", "__matmul__"
)
def last_product_only(self, other):
    if self.cols != other.rows:
        raise ValueError("sizes")
    result = [[0.0] * other.cols for _ in range(self.rows)]
    for i in range(self.rows):
        for j in range(other.cols):
            for k in range(self.cols):
                result[i][j] = self[i, k] * other[k, j]
    return Matrix(result)


@matrix.misconception(
    "X22",
    "All rows of your result are one and the same list: `[[0] * m] * n` repeats a reference, not a row.",
    "__matmul__",
)
def shared_rows(self, other):
    if self.cols != other.rows:
        raise ValueError("sizes")
    result = [[0.0] * other.cols] * self.rows
    for i in range(self.rows):
        for j in range(other.cols):
            result[i][j] = sum(self[i, k] * other[k, j] for k in range(self.cols))
    return Matrix(result)


@matrix.misconception(
    "X23", "Matrices that do not fit raise another error than ValueError, or none.", "__matmul__"
)
def index_error(self, other):
    return Matrix(
        [
            [
                sum(self[i, k] * other.tolist()[k][j] for k in range(self.cols))
                for j in range(other.cols)
            ]
            for i in range(self.rows)
        ]
    )


@matrix.misconception(
    "A44",
    "Matrices of other sizes are added as far as they go (zip stops at the shorter one); a "
    "ValueError is asked for.",
    "__add__",
)
def zip_adds(self, other):
    return Matrix([[a + b for a, b in zip(r, s)] for r, s in zip(self.tolist(), other.tolist())])


@matrix.misconception(
    "A44",
    "A single row is added, stretched over the others perhaps; sizes that differ raise a "
    "ValueError.",
    "__add__",
)
def broadcast_adds(self, other):
    return Matrix((np.array(self.tolist()) + np.array(other.tolist())).tolist())


@matrix.misconception(
    "X24", "The sum is written into the left operand; a new Matrix is asked for.", "__add__"
)
def adds_in_place(self, other):
    if (self.rows, self.cols) != (other.rows, other.cols):
        raise ValueError("sizes")
    for i in range(self.rows):
        for j in range(self.cols):
            self[i, j] = self[i, j] + other[i, j]
    return self


@matrix.misconception(
    "A20", "You divide without remainder (//): the decimals are lost.", "__truediv__"
)
def floor_division(self, s):
    return Matrix([[value // s for value in row] for row in self.tolist()])


@matrix.misconception("X25", "You divide in place: the matrix itself has changed.", "__truediv__")
def divides_in_place(self, s):
    for i in range(self.rows):
        for j in range(self.cols):
            self[i, j] = self[i, j] / s
    return self


@matrix.misconception(
    "X26", "The transpose only works where rows and columns are equally many.", "transpose"
)
def square_transpose(self):
    n = min(self.rows, self.cols)
    result = self.tolist()
    for i in range(n):
        for j in range(n):
            result[i][j] = self[j, i]
    return Matrix(result)


@matrix.misconception(
    "X25", "Your transpose changes the matrix itself; a new one is asked for.", "transpose"
)
def transposes_itself(self):
    self.__init__([list(column) for column in zip(*self.tolist())])
    return self


@matrix.misconception(
    "X27", "Rows come out reversed: you have turned the matrix, not transposed it.", "transpose"
)
def rotated(self):
    return Matrix([list(row) for row in zip(*self.tolist()[::-1])])


@matrix.misconception(
    "A13", "Your columns sum to 1. Softmax goes by row: the rows should.", "softmax"
)
def softmax_by_column(self):
    tops = [max(column) for column in zip(*self.tolist())]
    e = [[math.exp(v - t) for v, t in zip(row, tops)] for row in self.tolist()]
    sums = [sum(column) for column in zip(*e)]
    return Matrix([[v / s for v, s in zip(row, sums)] for row in e])


@matrix.misconception("A15", "All entries together sum to 1; each row should by itself.", "softmax")
def softmax_of_everything(self):
    top = max(max(row) for row in self.tolist())
    e = [[math.exp(v - top) for v in row] for row in self.tolist()]
    total = sum(sum(row) for row in e)
    return Matrix([[v / total for v in row] for row in e])


@matrix.misconception(
    "A18", "The entries are divided by their sum: the exponential is missing.", "softmax"
)
def without_exponential(self):
    return Matrix([[v / sum(row) for v in row] for row in self.tolist()])


@matrix.misconception(
    "A09", "exp overflows for large entries: subtract the row's maximum first.", "softmax"
)
def without_maximum(self):
    e = [[math.exp(v) for v in row] for row in self.tolist()]
    return Matrix([[v / sum(row) for v in row] for row in e])


@matrix.misconception(
    "A10",
    "You subtract the largest entry of the whole matrix: a row far below it becomes 0/0. Take each row's own.",
    "softmax",
)
def maximum_of_everything(self):
    top = max(max(row) for row in self.tolist())
    e = [[math.exp(v - top) for v in row] for row in self.tolist()]
    return Matrix([[v / sum(row) for v in row] for row in e])


@matrix.misconception(
    "X28",
    "The row's minimum is subtracted, so large entries still overflow: subtract the maximum.",
    "softmax",
)
def minimum_subtracted(self):
    e = [[math.exp(v - min(row)) for v in row] for row in self.tolist()]
    return Matrix([[v / sum(row) for v in row] for row in e])


@matrix.misconception("A21", "Your weights are rounded. Round in `str` only.", "softmax")
def softmax_rounded(self):
    rows = []
    for row in self.tolist():
        e = [math.exp(v - max(row)) for v in row]
        rows.append([round(v / sum(e), 4) for v in e])
    return Matrix(rows)


@matrix.misconception(
    "X29", "The data are not copied: who changes the list later changes your matrix.", "__init__"
)
def keeps_the_list(self, data):
    if not data or any(len(row) != len(data[0]) for row in data):
        raise ValueError("rows")
    self._data, self.rows, self.cols = data, len(data), len(data[0])


@matrix.misconception(
    "X30", "The outer list is copied, the rows are not: copy each row.", "__init__"
)
def shallow_copy(self, data):
    if not data or any(len(row) != len(data[0]) for row in data):
        raise ValueError("rows")
    self._data, self.rows, self.cols = list(data), len(data), len(data[0])


@matrix.misconception(
    "A46", "Rows of different lengths are accepted; they must raise a ValueError.", "__init__"
)
def accepts_ragged(self, data):
    if not data:
        raise ValueError("no rows")
    self._data = [list(row) for row in data]
    self.rows, self.cols = len(data), len(data[0])


@matrix.misconception(
    "A08", "No rows at all end in an IndexError or pass; a ValueError is asked for.", "__init__"
)
def empty_is_an_index_error(self, data):
    if any(len(row) != len(data[0]) for row in data):
        raise ValueError("rows")
    self._data = [list(row) for row in data]
    self.rows, self.cols = len(data), len(data[0])


@matrix.misconception(
    "X31",
    "A row of another length in the middle is not noticed: compare every row with the first.",
    "__init__",
)
def first_and_last_row_only(self, data):
    if not data or len(data[-1]) != len(data[0]):
        raise ValueError("rows")
    self._data = [list(row) for row in data]
    self.rows, self.cols = len(data), len(data[0])


@matrix.misconception(
    "X32", "tolist hands out the matrix's own rows: who changes them changes the matrix.", "tolist"
)
def hands_out_its_rows(self):
    return self._data


@matrix.misconception("X33", "Row and column are exchanged in `m[i, j]`.", "__getitem__")
def column_first(self, index):
    i, j = index
    return self._data[min(j, self.rows - 1)][min(i, self.cols - 1)]


@matrix.misconception(
    "X34", "Entries are counted from 1; here, as everywhere in Python, from 0.", "__getitem__"
)
def counted_from_one(self, index):
    i, j = index
    return self._data[i - 1][j - 1]


@matrix.misconception("X35", "`m[i, j] = value` has no effect.", "__setitem__")
def sets_a_copy(self, index, value):
    i, j = index
    row = list(self._data[i])
    row[j] = value


@matrix.misconception(
    "X36", "All entries are printed; five rows and five columns are enough.", "__str__"
)
def prints_everything(self):
    return "\n".join(" ".join(f"{v:.4f}" for v in row) for row in self.tolist())


@matrix.misconception("X37", "Two decimals are printed; four are asked for.", "__str__")
def two_decimals(self):
    lines = [
        " ".join(f"{v:.2f}" for v in row[:5]) + " ..." * (self.cols > 5)
        for row in self.tolist()[:5]
    ]
    return "\n".join(lines + ["..."] * (self.rows > 5))


@matrix.misconception("X38", "Nothing shows that the matrix is cut: `...` is missing.", "__str__")
def no_dots(self):
    return "\n".join(" ".join(f"{v:.4f}" for v in row[:5]) for row in self.tolist()[:5])


@matrix.misconception(
    "X39", "`...` stands there always; it means that something is cut.", "__str__"
)
def dots_always(self):
    return "\n".join(" ".join(f"{v:.4f}" for v in row[:5]) + " ..." for row in self.tolist()[:5])


@matrix.misconception(
    "X40",
    "Numbers are rounded to 4 places but not printed with them: use the format .4f.",
    "__str__",
)
def rounded_not_formatted(self):
    lines = [
        " ".join(str(round(v, 4)) for v in row[:5]) + " ..." * (self.cols > 5)
        for row in self.tolist()[:5]
    ]
    return "\n".join(lines + ["..."] * (self.rows > 5))


def _xavier(code, name, message, draw):
    """A wrong Matrix.xavier: `draw` is the expression for one entry."""
    matrix.slip(
        code, name, message,
        "return Matrix([[rng.gauss(0, deviation) for _ in range(cols)] for _ in range(rows)])",
        f"return Matrix([[{draw} for _ in range(cols)] for _ in range(rows)])",
    )  # fmt: skip


_xavier(
    "A39",
    "lecun-rows",
    "√(1/rows) is LeCun's start; Xavier's is √(2/(rows + cols)).",
    "rng.gauss(0, (1 / rows) ** 0.5)",
)
_xavier(
    "A39",
    "lecun-columns",
    "√(1/cols) is LeCun's start; Xavier's is √(2/(rows + cols)).",
    "rng.gauss(0, (1 / cols) ** 0.5)",
)
_xavier(
    "A38",
    "he",
    "√(2/rows) is He's start, for ReLU layers; Xavier's is √(2/(rows + cols)).",
    "rng.gauss(0, (2 / rows) ** 0.5)",
)
_xavier(
    "A36", "missing-brackets", "√(2/rows + cols) lacks brackets: 2 is divided by the sum of both.",
    "rng.gauss(0, (2 / rows + cols) ** 0.5)",
)  # fmt: skip
_xavier(
    "A41", "variance-as-deviation", "2/(rows + cols) is the variance; gauss takes the standard deviation, its root.",
    "rng.gauss(0, 2 / (rows + cols))",
)  # fmt: skip
_xavier(
    "A37", "six", "√(6/(rows + cols)) is the bound of the uniform version, not the standard deviation of the normal one.",
    "rng.gauss(0, (6 / (rows + cols)) ** 0.5)",
)  # fmt: skip
_xavier(
    "A38", "uniform", "The numbers are uniform; normal ones are asked for.",
    "rng.uniform(-((6 / (rows + cols)) ** 0.5), (6 / (rows + cols)) ** 0.5)",
)  # fmt: skip
_xavier(
    "X41",
    "global-generator",
    "The numbers come from the module `random`, not from rng: no seed repeats them.",
    "random.gauss(0, deviation)",
)
_xavier(
    "X42",
    "own-seed",
    "A generator of your own gives the same numbers whatever rng is.",
    "random.Random(7 * _ + 1).gauss(0, deviation)",
)
_xavier(
    "X43",
    "one-minus-one",
    "The numbers are uniform between −1 and 1: the size does not enter.",
    "rng.uniform(-1, 1)",
)


@matrix.alternative("zip and map", "__matmul__")
def product_by_zip(self, other):
    if self.cols != other.rows:
        raise ValueError("inner sizes")
    columns = list(zip(*other._data, strict=True))
    return Matrix([[sum(map(lambda a, b: a * b, row, c)) for c in columns] for row in self._data])


@matrix.alternative("three loops", "__matmul__")
def product_by_loops(self, other):
    if self.cols != other.rows:
        raise ValueError
    result = [[0] * other.cols for _ in range(self.rows)]
    for k in range(self.cols):
        for i in range(self.rows):
            for j in range(other.cols):
                result[i][j] += self._data[i][k] * other._data[k][j]
    return Matrix(result)


@matrix.alternative("another layout of the text", "__str__")
def text_in_brackets(self):
    text = "["
    for i in range(min(5, self.rows)):
        cells = [f"{float(self._data[i][j]):10.4f}" for j in range(min(5, self.cols))]
        text += "[" + ", ".join(cells) + (", ...]" if self.cols > 5 else "]")
    return text + ("...]" if self.rows > 5 else "]")


@matrix.alternative("class method and normalvariate", "xavier")
def drawn_by_a_class_method(rows, cols, rng):
    scale = (2.0 / (rows + cols)) ** 0.5
    return Matrix([[scale * rng.normalvariate(0, 1) for _ in range(cols)] for _ in range(rows)])


@matrix.alternative("a dictionary of entries")
class Dictionary:
    def __init__(self, data):
        lengths = {len(row) for row in data}
        if len(lengths) != 1:
            raise ValueError(f"rows of lengths {lengths}")
        self.rows, self.cols = len(data), lengths.pop()
        self.entries = {(i, j): v for i, row in enumerate(data) for j, v in enumerate(row)}

    def __getitem__(self, index):
        return self.entries[index]

    def __setitem__(self, index, value):
        self.entries[index] = value

    def _new(self, rows, cols, f):
        return Dictionary([[f(i, j) for j in range(cols)] for i in range(rows)])

    def __matmul__(self, other):
        if self.cols != other.rows:
            raise ValueError("inner sizes differ")
        return self._new(
            self.rows,
            other.cols,
            lambda i, j: math.fsum(self[i, k] * other[k, j] for k in range(self.cols)),
        )

    def __add__(self, other):
        if self.rows != other.rows or self.cols != other.cols:
            raise ValueError("sizes differ")
        return self._new(self.rows, self.cols, lambda i, j: self[i, j] + other[i, j])

    def __truediv__(self, s):
        return self._new(self.rows, self.cols, lambda i, j: self[i, j] / s)

    def transpose(self):
        return self._new(self.cols, self.rows, lambda i, j: self[j, i])

    def softmax(self):
        rows = []
        for i in range(self.rows):
            row = [self[i, j] for j in range(self.cols)]
            log_sum = max(row) + math.log(sum(math.exp(v - max(row)) for v in row))
            rows.append([math.exp(v - log_sum) for v in row])
        return Dictionary(rows)

    def tolist(self):
        return [[self[i, j] for j in range(self.cols)] for i in range(self.rows)]

    def __str__(self):
        return "\n".join(
            "\t".join("%.4f" % self[i, j] for j in range(min(self.cols, 5)))
            + ("\t..." if self.cols > 5 else "")
            for i in range(min(self.rows, 5))
        ) + ("\n..." if self.rows > 5 else "")

    @classmethod
    def xavier(cls, rows, cols, rng):
        return cls(
            [
                [rng.gauss(0.0, math.sqrt(2 / (rows + cols))) for _ in range(cols)]
                for _ in range(rows)
            ]
        )


# --- softmax ---------------------------------------------------------------------------------------

soft = exercise.function("softmax")

soft.witness("values", "C1", "softmax(x)", x=np.array([0.0, 1.0, 2.0]))
soft.witness("values", "C1", "softmax(x)", x=np.array([[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]]))
soft.witness("values", "C1", "softmax(x)", x=np.array([[[0.0, 1.0], [3.0, 0.0]]]))
soft.witness("values", "C3", "softmax(x)", x=np.array([[1, 2], [4, 4]]))
soft.witness("axis", "C1", "softmax(x, axis=0)", x=np.array([[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]]))
soft.witness("stability", "C2", "softmax(x)", x=np.array([[4000.0, 3999.0], [0.0, 1.0]]))
soft.witness("stability", "C2", "softmax(x)", x=np.array([-2000.0, -2001.0]))


@soft.hidden("values")
def _(rng):
    for shape in ((6,), (4, 7), (5, 5), (2, 3, 4), (3, 1), (1,), (2, 3, 1, 5)):
        yield Example("C1", "softmax(x)", {"x": rng.normal(size=shape) * 2})
    yield Example("C3", "softmax(x)", {"x": rng.integers(-4, 5, size=(4, 6))})
    yield Example("C3", "softmax(x)", {"x": (rng.normal(size=(4, 6)) * 2).astype(np.float32)})
    yield Example("C3", "softmax(x)", {"x": np.asfortranarray(rng.normal(size=(4, 6)))})


@soft.hidden("axis")
def _(rng):
    x = rng.normal(size=(3, 4, 5)) * 2
    for axis in (0, 1, 2, -1, -2, -3):
        yield Example("C1", "softmax(x, axis=axis)", {"x": x, "axis": axis})
    yield Example("C1", "softmax(x, 0)", {"x": rng.normal(size=(4, 4))})
    yield Example("C1", "softmax(x, axis=0)", {"x": rng.normal(size=5)})


@soft.hidden("stability")
def _(rng):
    x = rng.normal(size=(4, 6))
    x[1] += 5000
    yield Example("C2", "softmax(x)", {"x": x})
    yield Example("C2", "softmax(x, axis=0)", {"x": x.T.copy()})
    yield Example("C2", "softmax(x)", {"x": rng.normal(size=(3, 5)) - 3000})
    yield Example(
        "C2", "softmax(x)", {"x": rng.normal(size=(3, 5)) + np.array([[1e6], [0], [-1e6]])}
    )
    yield Example("C2", "softmax(x)", {"x": np.array([1e6, -1e6, 1e6 - 2])})
    single = rng.normal(size=(3, 5)) + np.array([[0], [900], [-900]])
    yield Example("C2", "softmax(x)", {"x": single.astype(np.float32)})
    yield Example("C2", "softmax(x)", {"x": rng.normal(size=(2, 3, 4)) * [[[1.0]], [[800.0]]]})


@soft.misconception(
    "A13", "You normalise over axis 0 whatever `axis` says: by default the last axis sums to 1."
)
def first_axis(x, axis=-1):
    e = np.exp(x - np.max(x, axis=0, keepdims=True))
    return e / e.sum(axis=0, keepdims=True)


@soft.misconception(
    "A14", "The argument `axis` is ignored: you always normalise over the last axis."
)
def axis_ignored(x, axis=-1):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@soft.misconception("A14", "You normalise over axis 1: the last axis is axis −1.")
def axis_one(x, axis=-1):
    axis = 1 if axis == -1 and np.ndim(x) > 1 else axis
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


@soft.misconception("A15", "All entries together sum to 1: give the sum the axis.")
def everything(x, axis=-1):
    e = np.exp(x - np.max(x))
    return e / e.sum()


@soft.misconception("A15", "All entries together sum to 1: give the sum the axis, too.")
def sum_of_everything(x, axis=-1):
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / e.sum()


@soft.misconception("A09", "exp overflows for large entries: subtract the maximum first.")
def no_maximum_subtracted(x, axis=-1):
    e = np.exp(x)
    return e / e.sum(axis=axis, keepdims=True)


@soft.misconception(
    "A10", "You subtract the largest entry of the whole array; rows far below it become 0/0."
)
def maximum_of_the_whole(x, axis=-1):
    e = np.exp(x - np.max(x))
    return e / e.sum(axis=axis, keepdims=True)


@soft.misconception("A12", "The maximum is only subtracted for one axis: more axes overflow.")
def shifted_in_one_dimension(x, axis=-1):
    e = np.exp(x - np.max(x) if np.ndim(x) == 1 else x)
    return e / e.sum(axis=axis, keepdims=True)


@soft.misconception(
    "A11", "Without keepdims=True the row sums are laid over the columns: shapes that fit by luck."
)
def no_keepdims(x, axis=-1):
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / e.sum(axis=axis)


@soft.misconception("A18", "The entries are divided by their sum: the exponential is missing.")
def no_exp(x, axis=-1):
    return x / np.sum(x, axis=axis, keepdims=True)


@soft.misconception(
    "A19", "Each entry goes through a sigmoid by itself: the weights do not sum to 1."
)
def sigmoids(x, axis=-1):
    return 1 / (1 + np.exp(-np.clip(x, -700, 700)))


@soft.misconception("A16", "You return the logarithm of the weights.")
def log_softmax(x, axis=-1):
    x = x - np.max(x, axis=axis, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=axis, keepdims=True))


@soft.misconception("A17", "The powers have the base 2; softmax has the base e.")
def base_two(x, axis=-1):
    e = 2.0 ** (x - np.max(x, axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


@soft.misconception("X44", "The sign is wrong: the smallest entry gets the largest weight.")
def negated(x, axis=-1):
    e = np.exp(np.min(x, axis=axis, keepdims=True) - x)
    return e / e.sum(axis=axis, keepdims=True)


@soft.misconception("A24", "x is changed in place: the caller's numbers are gone.")
def in_place(x, axis=-1):
    if x.dtype.kind == "i":
        x = x.astype(float)
    x -= np.max(x, axis=axis, keepdims=True)
    e = np.exp(x)
    return e / e.sum(axis=axis, keepdims=True)


@soft.misconception(
    "A26", "The result takes its dtype from x: for integers all weights are cut to 0 or 1."
)
def result_like_x(x, axis=-1):
    result = np.empty_like(x)
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    result[...] = e / e.sum(axis=axis, keepdims=True)
    return result


@soft.misconception("A21", "Your weights are rounded. Round for printing only.")
def rounded_softmax(x, axis=-1):
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return np.round(e / e.sum(axis=axis, keepdims=True), 4)


@soft.misconception("X17", "A small number in the denominator makes the rows sum to less than 1.")
def epsilon(x, axis=-1):
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / (e.sum(axis=axis, keepdims=True) + 1e-4)


@soft.misconception(
    "X45", "Large entries are clipped before exp: weights beyond the bound are wrong."
)
def clipped(x, axis=-1):
    e = np.exp(np.clip(x, -500, 500))
    return e / e.sum(axis=axis, keepdims=True)


@soft.alternative("logarithm of the sum")
def by_log_sum_exp(x, axis=-1):
    x = np.asarray(x, dtype=float)
    top = x.max(axis, keepdims=True)
    return np.exp(x - (top + np.log(np.exp(x - top).sum(axis, keepdims=True))))


@soft.alternative("apply_along_axis")
def along_axis(x, axis=-1):
    def one(row):
        e = np.exp(row - row.max())
        return e / e.sum()

    return np.apply_along_axis(one, axis, np.asarray(x, dtype=np.float64))


@soft.alternative("logaddexp")
def by_logaddexp(x, axis=-1):
    return np.exp(
        x - np.expand_dims(np.logaddexp.reduce(np.asarray(x, dtype=float), axis=axis), axis)
    )


@soft.alternative("moved axis, lists out")
def moved(x, axis=-1):
    y = np.moveaxis(np.array(x, dtype=float), axis, 0)
    y = y - y.max(0)
    y = np.exp(y)
    return np.moveaxis(y / y.sum(0), 0, axis).tolist()


@soft.alternative("in place on a copy")
def on_a_copy(x, axis=-1):
    y = np.array(x, dtype=np.result_type(x, np.float32), order="F")
    y -= y.max(axis=axis, keepdims=True)
    np.exp(y, out=y)
    y /= np.add.reduce(y, axis=axis, keepdims=True)
    return y


# --- linear ----------------------------------------------------------------------------------------

lin = exercise.function("linear")
XW, XWB = "linear(x, W)", "linear(x, W, b)"
X = np.array([[1.0, 2.0], [0.0, -1.0], [3.0, 0.5]])
W = np.array([[1.0, 0.0, 2.0, -1.0], [0.5, 1.0, -1.0, 3.0]])

lin.witness("values", "C1", XWB, x=X, W=W, b=np.array([10.0, 20.0, 30.0, 40.0]))
lin.witness("values", "C1", XW, x=X, W=W)
lin.witness(
    "values", "C3", XWB, x=np.array([[1, 2]]), W=np.array([[1, 2], [3, 4]]), b=np.array([0.5, 0.25])
)
lin.witness("batches", "C2", XWB, x=np.stack([X, X + 1]), W=W, b=np.array([1.0, 2.0, 3.0, 4.0]))
lin.witness("batches", "C2", XW, x=X[0], W=W)
lin.witness("errors", "C4", XW, x=X, W=W.T, options=RAISES)
lin.witness("errors", "C4", XW, x=X[:, :1], W=W, options=RAISES)
lin.witness("errors", "C4", XWB, x=X, W=W, b=np.array([1.0]), options=RAISES)


def layer(rng, shape, d_out, dtype=float):
    parts = {
        "x": rng.normal(size=shape),
        "W": rng.normal(size=(shape[-1], d_out)),
        "b": rng.normal(size=d_out),
    }
    return {key: value.astype(dtype) for key, value in parts.items()}


@lin.hidden("values")
def _(rng):
    for n, d_in, d_out in ((5, 3, 4), (4, 4, 4), (2, 5, 1), (6, 1, 3), (3, 7, 2)):
        case = layer(rng, (n, d_in), d_out)
        yield Example("C1", XWB, case)
        yield Example("C1", XW, {"x": case["x"], "W": case["W"]})
    yield Example("C1", "linear(x, W, b=b)", layer(rng, (5, 3), 4))
    yield Example("C1", "linear(x, W, None)", {"x": case["x"], "W": case["W"]})
    yield Example("C3", XWB, layer(rng, (5, 3), 4, np.float32))
    case = {key: (value * 5).astype(int) for key, value in layer(rng, (5, 3), 4).items()}
    yield Example("C3", XWB, case)
    yield Example("C3", XWB, {**case, "b": rng.normal(size=4)})
    yield Example("C3", XWB, {**case, "W": rng.normal(size=(3, 4))})


@lin.hidden("batches")
def _(rng):
    for shape in ((3,), (1,), (2, 5, 3), (2, 3, 4, 5), (4, 4, 4), (1, 1, 2)):
        case = layer(rng, shape, 4)
        yield Example("C2", XWB, case)
        yield Example("C2", XW, {"x": case["x"], "W": case["W"]})


@lin.hidden("errors")
def _(rng):
    for x, w in (
        ((5, 3), (4, 2)),
        ((4, 5, 3), (5, 2)),
        ((3,), (2, 4)),
        ((5, 1), (3, 2)),
        ((5, 3), (1, 2)),
        ((5, 4), (3, 4)),
    ):
        yield Example(
            "C4", XW, {"x": rng.normal(size=x), "W": rng.normal(size=w)}, raises="ValueError"
        )
    for b in (1, 3, 5):
        case = {**layer(rng, (5, 3), 4), "b": rng.normal(size=b)}
        yield Example("C4", XWB, case, raises="ValueError")


lin.slip("C17", "weights-transposed", "W is applied the other way round: here it is (d_in, d_out) and stands on the right, x @ W.",
         "return x @ W if b is None else x @ W + b", "return x @ W.T if b is None else x @ W.T + b")  # fmt: skip
lin.slip("X46", "bias-forgotten", "The bias b is not added.",
         "return x @ W if b is None else x @ W + b", "return x @ W")  # fmt: skip
lin.slip("X47", "bias-subtracted", "The bias is subtracted; it has to be added.",
         "x @ W + b", "x @ W - b")  # fmt: skip
lin.slip("X48", "bias-before", "The bias is added before the product; it comes after it.",
         "x @ W + b", "(x + b[: x.shape[-1]].sum()) @ W")  # fmt: skip
lin.slip("C25", "activated", "An activation (ReLU) follows your linear map; none is asked for.",
         "return x @ W if b is None else x @ W + b", "return np.maximum(x @ W if b is None else x @ W + b, 0)")  # fmt: skip
lin.slip("A30", "bias-in-a-condition", "`if b` asks an array for its truth: write `if b is not None`.",
         "if b is None else x @ W + b", "if not b else x @ W + b")  # fmt: skip
lin.slip("X49", "bias-stretched", "A bias of length 1 is stretched silently over all columns: test its shape.",
         "or (b is not None and b.shape != W.shape[1:])", "or (b is not None and b.shape != W.shape[1:] and b.shape != (1,))")  # fmt: skip
lin.slip("A26", "result-like-x", "The result takes its dtype from x: an integer x cuts the decimals.",
         "return x @ W if b is None else x @ W + b", "return (x @ W if b is None else x @ W + b).astype(x.dtype)")  # fmt: skip
lin.slip("B64", "two-axes", "Only a two-dimensional x works: any number of axes may stand before the last.",
         "    if x.shape[-1]", "    n, d_in = x.shape\n    if x.shape[-1]")  # fmt: skip
lin.slip("A05", "tensordot-first-axis", "The product runs over x's first axis; it has to run over its last.",
         "return x @ W if b is None else x @ W + b",
         "y = np.tensordot(x, W, (0 if x.shape[0] == W.shape[0] else -1, 0))\n    return y if b is None else y + b")  # fmt: skip
lin.slip("A24", "bias-in-place", "The weights W are changed in place.",
         "return x @ W if b is None else x @ W + b", "W *= 1.0 if W.dtype.kind == 'f' else 1\n    y = x @ W\n    if b is not None:\n        b += 0 * b.dtype.type(1) + (1 if b.dtype.kind == 'i' else 1e-3)\n        y = y + b\n    return y")  # fmt: skip
lin.slip("A48", "first-row-only", "Only the first row is right: the others are left at 0.",
         "return x @ W if b is None else x @ W + b",
         "y = x @ W if b is None else x @ W + b\n    if y.ndim > 1:\n        y[..., 1:, :] = 0\n    return y")  # fmt: skip


@lin.misconception(
    "X49",
    "An axis of length 1 is stretched silently (np.einsum and `*` do that): a width of 1 does not "
    "fit three rows of W, and nothing says so.",
)
def einsum_stretches(x, W, b=None):
    if b is not None and b.shape != W.shape[1:]:
        raise ValueError("b")
    y = np.einsum("...i,io->...o", x, W)
    return y if b is None else y + b


@lin.misconception("A02", "Sizes that do not fit give another error than ValueError, or are cut.")
def truncates(x, W, b=None):
    d = min(x.shape[-1], W.shape[0])
    y = x[..., :d] @ W[:d]
    return y if b is None else y + b


@lin.alternative("einsum")
def linear_by_einsum(x, W, b=None):
    if x.shape[-1] != W.shape[0]:
        raise ValueError("x and W")
    y = np.einsum("...i,io->...o", x, W)
    if b is not None:
        if b.shape[0] != W.shape[1]:
            raise ValueError("b")
        y = y + b
    return y


@lin.alternative("zeros for no bias")
def zero_bias(x, W, b=None):
    b = np.zeros(W.shape[1], dtype=W.dtype) if b is None else np.asarray(b)
    if np.shape(b) != (W.shape[1],):
        raise ValueError(f"bias {np.shape(b)}")
    return np.dot(x, W) + b


@lin.alternative("loops over output columns")
def by_columns(x, W, b=None):
    x, W = np.asarray(x, dtype=float), np.asarray(W, dtype=float)
    if x.shape[-1] != len(W) or (b is not None and len(b) != W.shape[1]):
        raise ValueError
    columns = [(x * W[:, o]).sum(-1) + (0 if b is None else b[o]) for o in range(W.shape[1])]
    return np.stack(columns, axis=-1)


@lin.alternative("flattened, lists out")
def flattened(x, W, b=None):
    if x.shape[-1] != W.shape[0] or (b is not None and b.shape != (W.shape[1],)):
        raise ValueError("shapes")
    y = x.reshape(-1, x.shape[-1]) @ W
    if b is not None:
        y = y + b[None]
    return y.reshape(*x.shape[:-1], -1).tolist()


@lin.alternative("tensordot")
def by_tensordot(x, W, b=None):
    if b is not None and b.shape != W.shape[1:]:
        raise ValueError("b")
    if W.shape[0] != x.shape[-1]:
        raise ValueError("W")
    y = np.tensordot(x, W, axes=1)
    return y + (0 if b is None else b)


# --- xavier_normal ---------------------------------------------------------------------------------

xavier = exercise.function("xavier_normal")
DRAW = "W = np.asarray(xavier_normal(np.random.default_rng(seed), d_in, d_out))\n"
AGAIN = (
    "one, other = np.random.default_rng(seed), np.random.default_rng(seed)\n"
    "first = np.asarray(xavier_normal(one, 4, 3))\n"
    "(np.array_equal(first, xavier_normal(other, 4, 3)), np.array_equal(first, xavier_normal(one, 4, 3)), "
    "np.array_equal(first, xavier_normal(np.random.default_rng(seed + 1), 4, 3)))"
)


def statistics(d_in, d_out, seed):
    """The statistics of one draw; the bounds lie six standard errors away."""
    count, std = d_in * d_out, math.sqrt(2 / (d_in + d_out))
    size = {"d_in": d_in, "d_out": d_out, "seed": seed}
    yield Example(
        "C2", DRAW + "W.std()", size, expect=std, rtol=6 / math.sqrt(2 * count), atol=0, once=True
    )
    yield Example(
        "C2",
        DRAW + "W.mean()",
        size,
        expect=0.0,
        rtol=0,
        atol=6 * std / math.sqrt(count),
        once=True,
    )
    bell = DRAW + "np.mean(np.abs(W) < W.std())"
    yield Example(
        "C2", bell, size, expect=0.6827, rtol=0, atol=6 * 0.47 / math.sqrt(count), once=True
    )
    yield Example("C2", DRAW + "np.unique(W).size > 0.9 * W.size", size, expect=True, once=True)
    tail = DRAW + "np.abs(W).max() > 3.2 * W.std()"  # a truncated or uniform draw has no tail
    yield Example("C2", tail, size, expect=True, once=True)


for example in statistics(80, 320, 5):
    xavier.witness(
        "statistics", "C2", example.code, **example.inputs,
        options={"expect": example.expect, "rtol": example.rtol, "atol": example.atol, "once": True},
    )  # fmt: skip
xavier.witness("generator", "C1", DRAW + "W.shape", d_in=2, d_out=5, seed=1)
xavier.witness("generator", "C3", AGAIN, seed=5)


@xavier.hidden("statistics")
def _(rng):
    seed = int(rng.integers(1 << 30))
    yield from statistics(500, 80, seed)
    yield from statistics(80, 500, seed + 1)
    yield from statistics(200, 200, seed + 2)


@xavier.hidden("generator")
def _(rng):
    seed = int(rng.integers(1 << 30))
    for d_in, d_out in ((3, 7), (7, 3), (1, 4), (4, 1)):
        yield Example("C1", DRAW + "W.shape", {"d_in": d_in, "d_out": d_out, "seed": seed})
    yield Example("C3", AGAIN, {"seed": seed})


NORMAL = "rng.normal(0.0, math.sqrt(2 / (d_in + d_out)), size=(d_in, d_out))"
for code, name, message, wrong in (
    ("A39", "lecun", "√(1/d_in) is LeCun's start; Xavier's is √(2/(d_in + d_out)).",
     "rng.normal(0.0, math.sqrt(1 / d_in), size=(d_in, d_out))"),
    ("A39", "lecun-out", "√(1/d_out): Xavier's takes both sizes, √(2/(d_in + d_out)).",
     "rng.normal(0.0, math.sqrt(1 / d_out), size=(d_in, d_out))"),
    ("A38", "he", "√(2/d_in) is He's start, for ReLU layers; Xavier's is √(2/(d_in + d_out)).",
     "rng.normal(0.0, math.sqrt(2 / d_in), size=(d_in, d_out))"),
    ("A36", "missing-brackets", "√(2/d_in + d_out) lacks brackets: 2 is divided by the sum.",
     "rng.normal(0.0, math.sqrt(2 / d_in + d_out), size=(d_in, d_out))"),
    ("A37", "six", "√(6/(d_in + d_out)) is the bound of the uniform version.",
     "rng.normal(0.0, math.sqrt(6 / (d_in + d_out)), size=(d_in, d_out))"),
    ("A37", "one", "√(1/(d_in + d_out)): the 2 is missing.",
     "rng.normal(0.0, math.sqrt(1 / (d_in + d_out)), size=(d_in, d_out))"),
    ("A41", "variance", "2/(d_in + d_out) is the variance; `normal` takes the standard deviation, its root.",
     "rng.normal(0.0, 2 / (d_in + d_out), size=(d_in, d_out))"),
    ("A43", "uniform", "The numbers are uniform with the right spread; normal ones are asked for.",
     "rng.uniform(-math.sqrt(6 / (d_in + d_out)), math.sqrt(6 / (d_in + d_out)), size=(d_in, d_out))"),
    ("A43", "truncated", "The tails are cut off: a normal distribution has numbers beyond two deviations.",
     "np.clip(rng.normal(0.0, math.sqrt(2 / (d_in + d_out)), size=(d_in, d_out)), -2 * math.sqrt(2 / (d_in + d_out)), 2 * math.sqrt(2 / (d_in + d_out)))"),
    ("X50", "standard", "The numbers are not scaled: their deviation is 1.",
     "rng.standard_normal((d_in, d_out))"),
    ("X51", "shape-exchanged", "The shape is (d_out, d_in); (d_in, d_out) is asked for.",
     "rng.normal(0.0, math.sqrt(2 / (d_in + d_out)), size=(d_out, d_in))"),
    ("X41", "global-generator", "The numbers come from np.random, not from rng: no seed repeats them.",
     "np.random.normal(0.0, math.sqrt(2 / (d_in + d_out)), size=(d_in, d_out))"),
    ("X42", "own-seed", "A generator of your own, with a fixed seed, gives the same weights whatever rng is.",
     "np.random.default_rng(0).normal(0.0, math.sqrt(2 / (d_in + d_out)), size=(d_in, d_out))"),
    ("X52", "one-row-repeated", "All rows are alike: every entry has to be drawn by itself.",
     "np.tile(rng.normal(0.0, math.sqrt(2 / (d_in + d_out)), size=(1, d_out)), (d_in, 1))"),
    ("X53", "positive", "All weights are positive: the mean has to be 0.",
     "np.abs(rng.normal(0.0, math.sqrt(2 / (d_in + d_out)), size=(d_in, d_out)))"),
):  # fmt: skip
    xavier.slip(code, name, message, NORMAL, wrong)


@xavier.alternative("standard normal, scaled")
def scaled_standard(rng, d_in, d_out):
    return rng.standard_normal((d_in, d_out)) * np.sqrt(2.0 / (d_in + d_out))


@xavier.alternative("entry by entry")
def entry_by_entry(rng, d_in, d_out):
    W = np.zeros((d_in, d_out))
    for i in range(d_in):
        W[i] = [rng.normal(scale=(2 / (d_in + d_out)) ** 0.5) for _ in range(d_out)]
    return W


@xavier.alternative("drawn transposed, float32")
def drawn_transposed(rng, d_in, d_out):
    return (rng.standard_normal((d_out, d_in), dtype=np.float32) * (2 / (d_in + d_out)) ** 0.5).T


@xavier.alternative("by Box and Muller")
def box_muller(rng, d_in, d_out):
    u, v = 1 - rng.random((d_in, d_out)), rng.random((d_in, d_out))
    return np.sqrt(-2 * np.log(u)) * np.cos(2 * math.pi * v) * math.sqrt(2 / (d_in + d_out))


@xavier.alternative("nested lists")
def nested_lists(rng, d_in, d_out):
    std = math.sqrt(2 / (d_in + d_out))
    return [[float(rng.normal(0, std)) for _ in range(d_out)] for _ in range(d_in)]


# --- break_careful_softmax -------------------------------------------------------------------------

found = BreakIt(exercise, "break_careful_softmax", answer="C2", sentences=3)
ROW = "x = np.array(break_careful_softmax()[1], dtype=float)\n"
found.fits(ROW + "bool(x.ndim == 1 and 1 <= x.size <= 4 and np.all(np.abs(x) <= 1000))")
found.shows(  # the order of the scores does not matter
    ROW + "x = np.roll(x, turn)\n"
    "weights = np.exp(x - np.abs(x).max())\n"
    "lost = weights.sum() == 0\n"
    'why = "the largest is the largest in size" if x.max() == np.abs(x).max() else "a power is left"\n'
    '"0 / 0" if lost else why',
    "0 / 0",
    lambda rng: {"turn": int(rng.integers(1 << 30))},
)
found.blames(
    "X54", "blames-the-formula", "C1",
    "The formula is kept: by the rules of mathematics any number may be subtracted from a whole row. Which sentence is about what a computer makes of it?",
)  # fmt: skip
found.blames(
    "X54", "blames-the-types", "C3",
    "It is a float64 problem as well, and x stays as it was. Which sentence is about very large and very small powers?",
)  # fmt: skip
found.input(
    "X55", "large-scores", "Here the largest score is also the largest in size, and exactly that is to be subtracted.",
    "[1000.0, 999.0]",
)  # fmt: skip
found.input(
    "X55", "not-low-enough", "The scores are brought down, but some power is still above 0, and the division brings it up again. How low must an exponent be?",
    "[-3.0, -4.0]",
)  # fmt: skip
found.input(
    "X56", "too-long", "At most four numbers are asked for, none beyond ±1000.", "[-4000.0] * 5"
)
found.returns(
    "X57", "without-the-row", "Two things are asked for: the sentence and the row.", '"C2"'
)


@found.alternative("an array")
def one_low_row():
    return "C2", np.array([-500.0, -400.0, -390.0])


@found.alternative("a single score")
def a_single_score():
    return ["C2", [-373.0]]
