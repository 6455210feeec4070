"""Makes red, green and blue of the planes that a JPEG holds, on a GPU, to the last bit like libjpeg-turbo in Pillow.

A JPEG holds brightness and two colour planes, which are often smaller. libjpeg-turbo interpolates between their samples
in whole numbers ("fancy upsampling"), and converts with factors of 16 bits. One launch does it for a whole batch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from jitney.gpu.nvrtc import Kernels

SOURCE = r"""
typedef long long Whole;
typedef unsigned char Byte;

enum Field { BRIGHTNESS, BLUE, RED, PITCH, COLOUR_PITCH, HEIGHT, WIDTH, ACROSS, DOWN, ANSWER, FIELDS };

#define PIXELS_PER_THREAD 4

__device__ int within(int value, int end) { return value < 0 ? 0 : value < end ? value : end - 1; }

// Four neighbours of a row of the picture, from a plane with a sample for `across` columns and `down` rows.
__device__ void interpolate(
    const Byte* plane, Whole pitch, int columns, int rows, int across, int down, int x, int y, int* found)
{
    const int row = down == 2 ? y >> 1 : y;
    const bool repeats = across == 2 && columns <= 2;  // libjpeg does so with very narrow pictures.
    const bool mixes_rows = down == 2 && !repeats;
    const int odd_row = y & 1;
    const int beside = mixes_rows ? within(odd_row ? row + 1 : row - 1, rows) : row;
    const Byte* near = plane + row * pitch;
    const Byte* far = plane + beside * pitch;
    if (across == 1) {
#pragma unroll
        for (int i = 0; i < PIXELS_PER_THREAD; i++) {
            const int column = within(x + i, columns);
            found[i] = mixes_rows ? (3 * near[column] + far[column] + 1 + odd_row) >> 2 : near[column];
        }
        return;
    }
    int sums[PIXELS_PER_THREAD / 2 + 2];  // From the column before the first to the one behind the last.
#pragma unroll
    for (int i = 0; i < PIXELS_PER_THREAD / 2 + 2; i++) {
        const int column = within((x >> 1) + i - 1, columns);
        sums[i] = mixes_rows ? 3 * near[column] + far[column] : near[column];
    }
#pragma unroll
    for (int i = 0; i < PIXELS_PER_THREAD; i++) {
        const int odd = i & 1, mine = sums[i / 2 + 1], next = sums[i / 2 + (odd ? 2 : 0)];
        found[i] = repeats ? mine : mixes_rows ? (3 * mine + next + 8 - odd) >> 4 : (3 * mine + next + 1 + odd) >> 2;
    }
}

__device__ unsigned int level(int value) { return value < 0 ? 0 : value > 255 ? 255 : value; }

extern "C" __global__ void to_rgb(const Whole* pictures)
{
    const Whole* picture = pictures + (Whole)blockIdx.z * FIELDS;
    const int width = (int)picture[WIDTH], height = (int)picture[HEIGHT];
    const int x = (blockIdx.x * blockDim.x + threadIdx.x) * PIXELS_PER_THREAD;
    const int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    const int across = (int)picture[ACROSS], down = (int)picture[DOWN];
    const Byte* bright = (const Byte*)picture[BRIGHTNESS] + y * picture[PITCH];
    int blue[PIXELS_PER_THREAD] = {128, 128, 128, 128}, red[PIXELS_PER_THREAD] = {128, 128, 128, 128};
    if (across) {
        const Whole pitch = picture[COLOUR_PITCH];
        const int columns = across == 2 ? (width + 1) >> 1 : width, rows = down == 2 ? (height + 1) >> 1 : height;
        interpolate((const Byte*)picture[BLUE], pitch, columns, rows, across, down, x, y, blue);
        interpolate((const Byte*)picture[RED], pitch, columns, rows, across, down, x, y, red);
    }
    unsigned int levels[3][PIXELS_PER_THREAD];
#pragma unroll
    for (int i = 0; i < PIXELS_PER_THREAD; i++) {
        const int light = bright[within(x + i, width)], b = blue[i] - 128, r = red[i] - 128;
        levels[0][i] = level(light + ((91881 * r + 32768) >> 16));
        levels[1][i] = level(light + ((-22554 * b - 46802 * r + 32768) >> 16));
        levels[2][i] = level(light + ((116130 * b + 32768) >> 16));
    }
    const Whole plane = (Whole)width * height;
    Byte* answer = (Byte*)picture[ANSWER] + (Whole)y * width + x;
    if (width % PIXELS_PER_THREAD == 0) {  // Then all four lie side by side at an address for a word.
#pragma unroll
        for (int c = 0; c < 3; c++)
            *(unsigned int*)(answer + c * plane) =
                levels[c][0] | levels[c][1] << 8 | levels[c][2] << 16 | levels[c][3] << 24;
        return;
    }
    for (int i = 0; i < PIXELS_PER_THREAD && x + i < width; i++)
        for (int c = 0; c < 3; c++) answer[c * plane + i] = (Byte)levels[c][i];
}
"""
KERNEL = "to_rgb"
PIXELS_PER_THREAD = 4
BLOCK = (32, 8, 1)


class Planes(NamedTuple):
    """Where the planes of a picture lie, and where its pixels go: addresses of the device, sizes in bytes."""

    brightness: int
    blue: int
    red: int
    pitch: int
    colour_pitch: int
    height: int
    width: int
    across: int
    """So many columns share a sample of colour, 1 or 2; 0 if there are no colours."""
    down: int
    answer: int
    """3 x height x width bytes, at a multiple of 4."""


class Colours:
    """The kernel, on one device."""

    def __init__(self, device: Any, kernels: Any = None) -> None:
        self._kernels = kernels or Kernels(SOURCE, (KERNEL,), device)

    def convert(self, table: Any, count: int, height: int, width: int, stream: Any) -> None:
        """Asks for it on a stream. The table has the numbers of `Planes` for each of the pictures, of which none is
        higher or wider than this."""
        grid = (blocks(width, BLOCK[0] * PIXELS_PER_THREAD), blocks(height, BLOCK[1]), count)
        self._kernels.launch(KERNEL, grid, BLOCK, (table,), stream)


def blocks(size: int, block: int) -> int:
    """How many blocks cover the size."""
    return -(-size // block)
