// The product of a few rows with INT4 weights: codes stream by, rows stay in registers.
//
// A block goes through tiles of 16 outputs. Each of its warps holds its share of the inputs of all
// rows, copies its codes of a tile to shared memory some tiles ahead, and multiplies them on the
// tensor cores. What the warps have is added up tile by tile. Inputs that no block can hold at once
// come in slices, one after the other, and slices may be shared out among blocks.
//
// Codes are in the order of int4_order.py. Defined before this is compiled:
//   EIGHTS  rows, in eights
//   GROUP   inputs that share a scale: 64 or 128
//   GROUPS  groups of a slice that a warp holds, a power of two
//   STAGES  tiles that are in shared memory at once
//   GATED   the first half of the outputs are gates of the second half
//   PARTS   blocks that share out the slices; what each has is written, if there are more than one
//   BIAS    bytes of a number of the bias: 2 (bf16) or 4

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

constexpr int WARPS = 8;
constexpr int SLICE = WARPS * GROUPS;        // groups
constexpr int WORDS = GROUP / 32;            // of eight codes, that a lane reads of a group
constexpr int LINE = GROUPS * GROUP / 2;     // bytes of a warp's codes of an output
constexpr int CHUNKS = LINE / 16;            // of a line, as they are copied
constexpr int SHARING = CHUNKS < 8 ? 8 / CHUNKS : 1;  // lines that fill all banks of shared memory
constexpr int SCALES = 16 * LINE;            // where they are in a stage
constexpr int STAGE = SCALES + 16 * GROUPS * 4;       // bytes of a warp
constexpr int SUMS = 32 * 16;                // bytes of four sums of every lane
constexpr int OUTPUTS = GATED ? 8 : 16;      // of a tile

__device__ u32 in_shared(const void* at) {
    return static_cast<u32>(__cvta_generic_to_shared(at));
}

__device__ void arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ void wait(u32 barrier, u32 parity) {
    asm volatile(
        "{\n.reg .pred done;\n"
        "again:\nmbarrier.test_wait.parity.shared.b64 done, [%0], %1;\n"
        "@!done bra again;\n}\n" ::"r"(barrier), "r"(parity) : "memory");
}

__device__ void copy_chunk(u32 to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

__device__ void copy_word(u32 to, const void* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}

__device__ u32 read_word(u32 at) {
    u32 word;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(at) : "memory");
    return word;
}

__device__ void read_words(u32 (&words)[4], u32 at) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(at) : "memory");
}

__device__ void read_words(u32 (&words)[2], u32 at) {
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                 : "=r"(words[0]), "=r"(words[1]) : "r"(at) : "memory");
}

__device__ void read_inputs(u32 (&words)[4], const u16* from) {
    const uint4 four = *reinterpret_cast<const uint4*>(from);
    words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
}

__device__ void read_inputs(u32 (&words)[2], const u16* from) {
    const uint2 two = *reinterpret_cast<const uint2*>(from);
    words[0] = two.x, words[1] = two.y;
}

__device__ float4 read_sums(u32 at) {
    float4 sums;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(sums.x), "=f"(sums.y), "=f"(sums.z), "=f"(sums.w)
                 : "r"(at) : "memory");
    return sums;
}

__device__ void write_sums(u32 at, float4 sums) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(at), "f"(sums.x), "f"(sums.y),
                 "f"(sums.z), "f"(sums.w) : "memory");
}

__device__ void add(float4& sums, float4 more) {
    sums.x += more.x, sums.y += more.y, sums.z += more.z, sums.w += more.w;
}

// Where a chunk of a line is, so that lanes that read at once read from all banks.
__device__ int place_of(int line, int chunk) {
    return (chunk ^ line / SHARING % (8 / WORDS / SHARING) * WORDS) * 16;
}

// 128 + code in bf16, for the codes at bit 4 * quarter of both half-words: they are its mantissa.
__device__ u32 numbers(u32 codes, int quarter) {
    u32 both;
    asm("lop3.b32 %0, %1, 0x000F000F, 0x43004300, 0xEA;" : "=r"(both) : "r"(codes >> 4 * quarter));
    return both;
}

__device__ void multiply(float4& sums, const u32 (&weights)[4], u32 low, u32 high) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums.x), "+f"(sums.y), "+f"(sums.z), "+f"(sums.w)
        : "r"(weights[0]), "r"(weights[1]), "r"(weights[2]), "r"(weights[3]), "r"(low), "r"(high));
}

__device__ u16 narrowed(float value) {
    u16 half;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
}

__device__ float widened(u16 half) { return __uint_as_float(static_cast<u32>(half) << 16); }

__device__ float sum_of(u32 both) { return widened(both & 0xFFFF) + widened(both >> 16); }

__device__ float bias_of(const void* bias, int output) {
    if (BIAS == 4) return static_cast<const float*>(bias)[output];
    return widened(static_cast<const u16*>(bias)[output]);
}

__device__ float gated(float gate, float up) {
    gate = widened(narrowed(gate));  // as if both had been written
    return gate / (1 + __expf(-gate)) * widened(narrowed(up));
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, 1) int4_few_rows(
    const u16* x,                // [rows, groups * GROUP], bf16
    const unsigned char* codes,  // of [outputs, or twice as many if gated, groups * GROUP]
    const u32* scales,           // above zeros, [the same, groups]
    const void* bias,            // [the same], or none
    void* out,                   // [rows, outputs] in bf16, or [PARTS, rows, outputs] in fp32
    int rows,
    int groups,
    int outputs) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
    extern __shared__ __align__(128) unsigned char room[];
    __shared__ __align__(8) u64 barriers[2];
    const u32 summed = in_shared(barriers), stages = in_shared(room);
    const u32 mixed = stages + STAGES * WARPS * STAGE, kept = mixed + 2 * WARPS * EIGHTS * SUMS;
    if (threadIdx.x < 2)
        asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(summed + 8 * threadIdx.x),
                     "r"(WARPS) : "memory");
    __syncthreads();

    const int blocks = gridDim.x / PARTS, part = blockIdx.x / blocks, block = blockIdx.x % blocks;
    const int tiles = (outputs + OUTPUTS - 1) / OUTPUTS;
    const int slices = (groups + SLICE - 1) / SLICE;
    const int first = block * tiles / blocks, end = (block + 1) * tiles / blocks;
    const int first_slice = part * slices / PARTS, end_slice = (part + 1) * slices / PARTS;
    if (first == end || first_slice == end_slice) return;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int eighth = lane / 4, fourth = lane % 4;

    // A warp copies what it reads itself, so that none waits for another.
    const u32 mine = stages + warp * STAGE;
    int next_slice = first_slice, next_tile = first, next_slot = 0;
    auto output_of = [&](int tile, int line) {
        if (GATED) return min(tile * 8 + line % 8, outputs - 1) + line / 8 * outputs;
        return min(tile * 16 + line, outputs - 1);
    };
    auto fetch = [&]() {
        if (next_slice < end_slice) {
            const int group = next_slice * SLICE + warp * GROUPS;
            const u32 to = mine + next_slot * (WARPS * STAGE);
#pragma unroll
            for (int i = lane; i < 16 * CHUNKS; i += 32) {
                const int line = i / CHUNKS, chunk = i % CHUNKS;
                const u64 from = (u64)output_of(next_tile, line) * groups + group;
                if (group + chunk * 32 / GROUP < groups)
                    copy_chunk(to + line * LINE + place_of(line, chunk),
                               codes + from * (GROUP / 2) + chunk * 16);
            }
            if (lane < 16) {
                const u32* from = scales + (u64)output_of(next_tile, lane) * groups + group;
#pragma unroll
                for (int g = 0; g < GROUPS; g++)
                    if (group + g < groups)
                        copy_word(to + SCALES + (lane * GROUPS + g) * 4, from + g);
            }
            if (++next_tile == end) next_tile = first, next_slice++;
            next_slot = (next_slot + 1) % STAGES;
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    for (int i = 0; i < STAGES - 1; i++) fetch();
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif

    // Add up what all warps have of the tile of a step, for the rows that are this warp's.
    auto finish = [&](int step, int tile, int slice) {
        const u32 side = step & 1;
        wait(summed + 8 * side, step >> 1 & 1);
        if (warp >= EIGHTS) return;
        float4 sums = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int i = 0; i < WARPS; i++)
            add(sums, read_sums(mixed + ((side * WARPS + i) * EIGHTS + warp) * SUMS + lane * 16));
        const u32 before = kept + ((tile - first) * EIGHTS + warp) * SUMS + lane * 16;
        if (slice > first_slice) add(sums, read_sums(before));
        if (slice + 1 < end_slice) return write_sums(before, sums);
        const int row = warp * 8 + fourth * 2, output = tile * OUTPUTS + eighth;
        const int other = output + (GATED ? outputs : 8);
        const bool has_other = GATED || other < outputs;
        if (output >= outputs) return;
        if (bias && part == 0) {
            const float low = bias_of(bias, output), high = has_other ? bias_of(bias, other) : 0;
            add(sums, make_float4(low, low, high, high));
        }
        auto store = [&](int row, int output, float value) {
            const u64 at = (u64)(part * rows + row) * outputs + output;
            if (PARTS > 1)
                static_cast<float*>(out)[at] = value;
            else
                static_cast<u16*>(out)[at] = narrowed(value);
        };
        if (row < rows) store(row, output, GATED ? gated(sums.x, sums.z) : sums.x);
        if (row + 1 < rows) store(row + 1, output, GATED ? gated(sums.y, sums.w) : sums.y);
        if (GATED || !has_other) return;
        if (row < rows) store(row, other, sums.z);
        if (row + 1 < rows) store(row + 1, other, sums.w);
    };

    int step = 0, last_tile = 0, last_slice = 0;
    for (int slice = first_slice; slice < end_slice; slice++) {
        const int group = slice * SLICE + warp * GROUPS;
        u32 held[GROUPS][EIGHTS][4][WORDS];  // pairs of inputs, of each quarter of a group
        float2 sums_of_x[GROUPS][EIGHTS];    // of the two rows whose products this lane has
#pragma unroll
        for (int g = 0; g < GROUPS; g++)
#pragma unroll
            for (int j = 0; j < EIGHTS; j++) {
                const int row = j * 8 + eighth;
                const bool there = row < rows && group + g < groups;
                const u16* from = x + ((u64)row * groups + group + g) * GROUP + fourth * 2 * WORDS;
                float sum = 0;
#pragma unroll
                for (int quarter = 0; quarter < 4; quarter++) {
                    auto& words = held[g][j][quarter];
#pragma unroll
                    for (int w = 0; w < WORDS; w++) words[w] = 0;
                    if (there) read_inputs(words, from + quarter * (GROUP / 4));
#pragma unroll
                    for (int w = 0; w < WORDS; w++) sum += sum_of(words[w]);
                }
                sum += __shfl_xor_sync(~0u, sum, 1);
                sum += __shfl_xor_sync(~0u, sum, 2);
                sums_of_x[g][j].x = __shfl_sync(~0u, sum, 8 * fourth);
                sums_of_x[g][j].y = __shfl_sync(~0u, sum, 8 * fourth + 4);
            }
        for (int tile = first; tile < end; tile++, step++) {
            fetch();
            asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 1) : "memory");
            __syncwarp();
            const u32 stage = mine + step % STAGES * (WARPS * STAGE);
            float4 sums[EIGHTS];
#pragma unroll
            for (int j = 0; j < EIGHTS; j++) sums[j] = make_float4(0, 0, 0, 0);
#pragma unroll
            for (int g = 0; g < GROUPS; g++) {
                if (group + g >= groups) break;
                u32 words[2][WORDS];
                float scale[2], offset[2];
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int line = eighth + 8 * half;
                    const int byte = g * (GROUP / 2) + fourth * (4 * WORDS);
                    read_words(words[half],
                               stage + line * LINE + place_of(line, byte / 16) + byte % 16);
                    const u32 both = read_word(stage + SCALES + (line * GROUPS + g) * 4);
                    scale[half] = __uint_as_float(both & 0xFFFF0000);
                    offset[half] = __uint_as_float(0xC3000000 | (both & 15) << 16);  // -128 - zero
                }
                float4 of_group[EIGHTS];
#pragma unroll
                for (int j = 0; j < EIGHTS; j++) {
                    const float2 of_x = sums_of_x[g][j];
                    of_group[j] = make_float4(offset[0] * of_x.x, offset[0] * of_x.y,
                                              offset[1] * of_x.x, offset[1] * of_x.y);
                }
#pragma unroll
                for (int quarter = 0; quarter < 4; quarter++)
#pragma unroll
                    for (int w = 0; w < WORDS; w += 2) {
                        const u32 weights[4] = {
                            numbers(words[0][w], quarter), numbers(words[1][w], quarter),
                            numbers(words[0][w + 1], quarter), numbers(words[1][w + 1], quarter)};
#pragma unroll
                        for (int j = 0; j < EIGHTS; j++) {
                            const auto& inputs = held[g][j][quarter];
                            multiply(of_group[j], weights, inputs[w], inputs[w + 1]);
                        }
                    }
#pragma unroll
                for (int j = 0; j < EIGHTS; j++) {
                    sums[j].x += of_group[j].x * scale[0], sums[j].y += of_group[j].y * scale[0];
                    sums[j].z += of_group[j].z * scale[1], sums[j].w += of_group[j].w * scale[1];
                }
            }
            __syncwarp();
            if (step > 0) finish(step - 1, last_tile, last_slice);
#pragma unroll
            for (int j = 0; j < EIGHTS; j++)
                write_sums(mixed + (((step & 1) * WARPS + warp) * EIGHTS + j) * SUMS + lane * 16,
                           sums[j]);
            __syncwarp();
            if (lane == 0) arrive(summed + 8 * (step & 1));
            last_tile = tile, last_slice = slice;
        }
    }
    finish(step - 1, last_tile, last_slice);
}
