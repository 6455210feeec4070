"""The kernels that resize, crop and normalise pictures on a GPU, as CUDA's C++ (see `resizing`).

Pictures of any sizes become a batch in three launches, with the same numbers as Pillow's: its antialiased bilinear
filter is two passes of whole numbers, rounded to 8 bits after each, with weights that are made in double precision
without fused operations. The first `count` rows of `pictures` are a picture each (`Field`), their places in the answer
follow. `Taps` are for the `out_width` columns and then the `out_height` rows of every picture.
"""

SOURCE = r"""
typedef long long Whole;
typedef unsigned char Byte;

enum Field { ADDRESS, HEIGHT, WIDTH, RESIZED_HEIGHT, RESIZED_WIDTH, TOP, LEFT, BETWEEN, FIELDS };

#define PRECISION_BITS 22
#define ROWS_PER_THREAD 4

struct Taps { int *firsts, *counts, *weights; };

// One after another in the memory for them.
__device__ Taps taps_in(int* memory, int count, int outputs)
{
    const Whole size = (Whole)count * outputs;
    const Taps found = {memory, memory + size, memory + 2 * size};
    return found;
}

// For every column and row of the answer: which pixels it is made of, and their weights.
extern "C" __global__ void weigh(
    const Whole* pictures, int* memory, int all, int taps, int out_width, int out_height)
{
    const int outputs = out_width + out_height;
    const Taps found = taps_in(memory, all, outputs);
    const int output = blockIdx.x * blockDim.x + threadIdx.x;
    if (output >= outputs) return;
    const Whole* picture = pictures + (Whole)blockIdx.y * FIELDS;
    const bool across = output < out_width;
    const int size = (int)picture[across ? WIDTH : HEIGHT];
    const int resized = (int)picture[across ? RESIZED_WIDTH : RESIZED_HEIGHT];
    const int at = (int)(across ? picture[LEFT] + output : picture[TOP] + output - out_width);

    const double scale = __ddiv_rn((double)size, (double)resized);
    const double support = scale < 1.0 ? 1.0 : scale;
    const double narrow = __ddiv_rn(1.0, support);
    const double center = __dmul_rn(at + 0.5, scale);
    int first = (int)__dadd_rn(__dadd_rn(center, -support), 0.5);
    if (first < 0) first = 0;
    int end = (int)__dadd_rn(__dadd_rn(center, support), 0.5);
    if (end > size) end = size;
    int count = end - first;
    if (count > taps) count = taps;

    double sum = 0.0;
    for (int tap = 0; tap < count; tap++) {
        double x = __dmul_rn(__dadd_rn(__dadd_rn((double)(tap + first), -center), 0.5), narrow);
        if (x < 0.0) x = -x;
        sum = __dadd_rn(sum, x < 1.0 ? 1.0 - x : 0.0);
    }
    const Whole place = (Whole)blockIdx.y * outputs + output;
    found.firsts[place] = first;
    found.counts[place] = count;
    int* mine = found.weights + (Whole)blockIdx.y * taps * outputs + output;
    for (int tap = 0; tap < count; tap++) {
        double x = __dmul_rn(__dadd_rn(__dadd_rn((double)(tap + first), -center), 0.5), narrow);
        if (x < 0.0) x = -x;
        double weight = x < 1.0 ? 1.0 - x : 0.0;
        if (sum != 0.0) weight = __ddiv_rn(weight, sum);
        mine[(Whole)tap * outputs] = (int)__dadd_rn(0.5, __dmul_rn(weight, (double)(1 << PRECISION_BITS)));
    }
}

// The columns of the answer, for the rows that it needs: `between` is three planes of HEIGHT x out_width bytes.
extern "C" __global__ void narrow_rows(
    const Whole* pictures, int* memory, Byte* between, int all, int taps, int out_width, int out_height)
{
    const int outputs = out_width + out_height;
    const Taps found = taps_in(memory, all, outputs);
    const int *firsts = found.firsts, *counts = found.counts;
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    if (x >= out_width) return;
    const Whole* picture = pictures + (Whole)blockIdx.z * FIELDS;
    const Whole place = (Whole)blockIdx.z * outputs;
    const int begin = firsts[place + out_width];
    const int end = firsts[place + outputs - 1] + counts[place + outputs - 1];
    const int row = begin + (blockIdx.y * blockDim.y + threadIdx.y) * ROWS_PER_THREAD;
    if (row >= end) return;
    const int rows = end - row < ROWS_PER_THREAD ? end - row : ROWS_PER_THREAD;

    const Whole width = picture[WIDTH], plane = picture[HEIGHT] * width;
    const int first = firsts[place + x], count = counts[place + x];
    const int* mine = found.weights + (Whole)blockIdx.z * taps * outputs + x;
    const Byte* source = (const Byte*)picture[ADDRESS] + row * width + first;
    int sums[3][ROWS_PER_THREAD];
    for (int c = 0; c < 3; c++)
        for (int r = 0; r < ROWS_PER_THREAD; r++) sums[c][r] = 1 << (PRECISION_BITS - 1);
    for (int tap = 0; tap < count; tap++) {
        const int weight = mine[(Whole)tap * outputs];
#pragma unroll
        for (int c = 0; c < 3; c++)
#pragma unroll
            for (int r = 0; r < ROWS_PER_THREAD; r++)
                if (r < rows) sums[c][r] += weight * source[c * plane + r * width + tap];
    }
    Byte* target = between + picture[BETWEEN] + (Whole)row * out_width + x;
    const Whole target_plane = picture[HEIGHT] * out_width;
#pragma unroll
    for (int c = 0; c < 3; c++)
#pragma unroll
        for (int r = 0; r < ROWS_PER_THREAD; r++)
            if (r < rows) {
                int value = sums[c][r] >> PRECISION_BITS;
                target[c * target_plane + (Whole)r * out_width] = (Byte)(value < 0 ? 0 : value > 255 ? 255 : value);
            }
}

// The rows of the answer. `shades` has the normalised number of every byte for every channel, `Number` wide.
template <typename Number>
__device__ void shorten(
    const Whole* pictures, int* memory, const Byte* between, const Number* shades, Number* answer,
    int all, int taps, int out_width, int out_height, int channels_last)
{
    const int outputs = out_width + out_height;
    const Taps found = taps_in(memory, all, outputs);
    const Whole* places = pictures + (Whole)all * FIELDS;
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= out_width || y >= out_height) return;
    const Whole* picture = pictures + (Whole)blockIdx.z * FIELDS;
    const Whole place = (Whole)blockIdx.z * outputs + out_width + y;
    const int first = found.firsts[place], count = found.counts[place];
    const int* mine = found.weights + (Whole)blockIdx.z * taps * outputs + out_width + y;
    const Whole plane = picture[HEIGHT] * out_width;
    const Byte* source = between + picture[BETWEEN] + (Whole)first * out_width + x;
    int sums[3] = {1 << (PRECISION_BITS - 1), 1 << (PRECISION_BITS - 1), 1 << (PRECISION_BITS - 1)};
    for (int tap = 0; tap < count; tap++) {
        const int weight = mine[(Whole)tap * outputs];
#pragma unroll
        for (int c = 0; c < 3; c++) sums[c] += weight * source[c * plane + (Whole)tap * out_width];
    }
    const Whole pixels = (Whole)out_width * out_height;
    const Whole pixel = (Whole)y * out_width + x;
    Number* target = answer + (Whole)places[blockIdx.z] * 3 * pixels + (channels_last ? pixel * 3 : pixel);
    const Whole step = channels_last ? 1 : pixels;
#pragma unroll
    for (int c = 0; c < 3; c++) {
        int value = sums[c] >> PRECISION_BITS;
        target[c * step] = shades[c * 256 + (value < 0 ? 0 : value > 255 ? 255 : value)];
    }
}

#define SHORTEN(NAME, NUMBER)                                                                                         \
    extern "C" __global__ void NAME(                                                                                  \
        const Whole* pictures, int* memory, const Byte* between, const NUMBER* shades, NUMBER* answer, int all,       \
        int taps, int out_width, int out_height, int channels_last)                                                   \
    {                                                                                                                 \
        shorten<NUMBER>(pictures, memory, between, shades, answer, all, taps, out_width, out_height, channels_last);  \
    }

SHORTEN(shorten_columns_16, unsigned short)
SHORTEN(shorten_columns_32, unsigned int)
"""
