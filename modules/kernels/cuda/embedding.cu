// Embeddings. The backward sorts the rows by id (stably) and adds them in that order: which rows meet, and in which
// order, depends only on the ids. Frequent ids are not slower, since the sorted rows are cut into tiles of equal size;
// an id that spans tiles is summed tile by tile. Ids outside the table sort last, as a single id, whose rows are not
// read.
#include <algorithm>
#include <limits>

#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/dispatch.hpp"
#include "kernels/cuda/pack.hpp"
#include "kernels/cuda/reduce.hpp"

namespace lockstep::kernels::cuda {
namespace {

constexpr unsigned threads = 256;
constexpr int in_flight = 4;

// The rows of a table with the ids first, first + 1, …: an id outside maps to row `count`.
struct TableRows {
    const std::int32_t* ids;
    std::uint32_t first, count;
    __device__ std::int32_t operator[](std::int64_t row) const {
        const std::uint32_t at =
            static_cast<std::uint32_t>(ids[row]) - first;  // smaller ids wrap around to large values
        return static_cast<std::int32_t>(at < count ? at : count);
    }
    __device__ bool outside(std::int32_t id) const { return static_cast<std::uint32_t>(id) == count; }
};

// One warp per row.
template <class T, int width>
__global__ void __launch_bounds__(threads)
    embedding_forward_kernel(T* __restrict__ y, TableRows ids, const T* __restrict__ table,
                             const T* __restrict__ position, std::int64_t rows, std::int64_t row_width,
                             std::int64_t length, std::int64_t first_position) {
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (threads / warp_width) + threadIdx.x / warp_width;
    const int lane = static_cast<int>(threadIdx.x) % warp_width;
    if (row >= rows) return;
    const std::int32_t id = ids[row];
    const T* from = table + static_cast<std::int64_t>(id) * row_width;
    const T* place = position ? position + (first_position + row % length) * row_width : nullptr;
    T* const to = y + row * row_width;
    constexpr std::int64_t step = static_cast<std::int64_t>(warp_width) * width;
    if (ids.outside(id)) {  // position only, or zeros
        from = place;
        place = nullptr;
        if (!from) {
            for (std::int64_t column = lane * width; column < row_width; column += step)
                store_pack(to + column, Pack<T, width>{});
            return;
        }
    }
    for (std::int64_t first = lane * width; first < row_width; first += in_flight * step) {
        Pack<T, width> values[in_flight], places[in_flight];
#pragma unroll
        for (int k = 0; k < in_flight; ++k) {
            if (first + k * step >= row_width) break;
            values[k] = load_pack<width>(from + first + k * step);
            if (place) places[k] = load_pack<width>(place + first + k * step);
        }
#pragma unroll
        for (int k = 0; k < in_flight; ++k) {
            if (first + k * step >= row_width) break;
            if (place) {
#pragma unroll
                for (int e = 0; e < width; ++e)
                    values[k].at[e] = from_float<T>(to_float(values[k].at[e]) + to_float(places[k].at[e]));
            }
            store_pack(to + first + k * step, values[k]);
        }
    }
}

// Sorting: a block owns the rows of `run` neighbouring ids. Each of its warps reads its share of all ids twice: to
// count and to place.
constexpr int run_bits = 7, run = 1 << run_bits;
constexpr unsigned order_threads = 512;
constexpr int order_warps = static_cast<int>(order_threads) / warp_width;

// Which lanes in `among` have the same `local` id as this one. All lanes must call.
__device__ inline unsigned same_id(unsigned among, int local) {
    unsigned same = among;
#pragma unroll
    for (int bit = 0; bit < run_bits; ++bit) {
        const unsigned set = __ballot_sync(all_lanes, (local >> bit) & 1);
        same &= (local >> bit) & 1 ? set : ~set;
    }
    return same;
}

// Visits this warp's share of all ids in order. A row whose id is in the run gets the next place of its id,
// places[id - first_id], and use(row, place) is called; returns how many ids of this lane are below the run.
template <class Use>
__device__ inline std::int32_t take_places(std::int32_t* places, const TableRows& ids, std::int64_t rows,
                                           std::int32_t first_id, Use&& use) {
    const int warp = static_cast<int>(threadIdx.x) / warp_width, lane = static_cast<int>(threadIdx.x) % warp_width;
    constexpr std::int64_t tile = static_cast<std::int64_t>(warp_width) * in_flight;
    const std::int64_t tiles = (rows + tile - 1) / tile, share = (tiles + order_warps - 1) / order_warps;
    const std::int64_t begin = warp * share * tile;
    const std::int64_t end = begin + share * tile < rows ? begin + share * tile : rows;
    std::int32_t below = 0;
    for (std::int64_t first = begin; first < end; first += tile) {
        std::int32_t locals[in_flight];
#pragma unroll
        for (int k = 0; k < in_flight; ++k) {
            const std::int64_t row = first + k * warp_width + lane;
            locals[k] = row < end ? ids[row] - first_id : run;
        }
#pragma unroll
        for (int k = 0; k < in_flight; ++k) {
            const std::int32_t local = locals[k];
            const bool mine = local >= 0 && local < run;
            below += local < 0 ? 1 : 0;
            const unsigned among = __ballot_sync(all_lanes, mine);
            if (among == 0) continue;
            const unsigned same = same_id(among, mine ? local : 0), before = same & ((1u << lane) - 1u);
            std::int32_t place = 0;
            if (mine && before == 0) {  // the first lane of an id takes the places of all
                place = places[local];
                places[local] = place + __popc(same);
            }
            place = __shfl_sync(all_lanes, place, mine ? __ffs(static_cast<int>(same)) - 1 : lane);
            if (mine) use(first + k * warp_width + lane, place + __popc(before));
            __syncwarp(all_lanes);  // another lane may be first next time
        }
    }
    return below;
}

// order[0, rows): the rows, by id and then by row.
__global__ void __launch_bounds__(order_threads)
    order_rows_kernel(std::int32_t* __restrict__ order, TableRows ids, std::int64_t rows) {
    const int thread = static_cast<int>(threadIdx.x), warp = thread / warp_width, lane = thread % warp_width;
    const std::int32_t first_id = static_cast<std::int32_t>(blockIdx.x) * run;
    std::int32_t* const places = shared_memory<std::int32_t>();  // [order_warps][run]: counts, then next places
    std::int32_t* const totals = places + order_warps * run;     // [run]
    std::int32_t* const belows = totals + run;                   // [order_warps]
    for (int i = thread; i < order_warps * run; i += static_cast<int>(order_threads)) places[i] = 0;
    __syncthreads();

    std::int32_t* const mine = places + warp * run;
    std::int32_t below = take_places(mine, ids, rows, first_id, [](std::int64_t, std::int32_t) {});
#pragma unroll
    for (int distance = warp_width / 2; distance > 0; distance /= 2)
        below += __shfl_xor_sync(all_lanes, below, distance);
    if (lane == 0) belows[warp] = below;
    __syncthreads();

    if (thread < run) {
        std::int32_t total = 0;
        for (int w = 0; w < order_warps; ++w) {
            const std::int32_t count = places[w * run + thread];
            places[w * run + thread] = total;
            total += count;
        }
        totals[thread] = total;
    }
    __syncthreads();
    if (thread < run) {
        std::int32_t start = 0;
        for (int w = 0; w < order_warps; ++w) start += belows[w];
        for (int i = 0; i < thread; ++i) start += totals[i];
        for (int w = 0; w < order_warps; ++w) places[w * run + thread] += start;
    }
    __syncthreads();

    take_places(mine, ids, rows, first_id,
                [&](std::int64_t row, std::int32_t place) { order[place] = static_cast<std::int32_t>(row); });
}

constexpr int tile_rows = 32;

// to += values.
template <int width>
__device__ inline void add_floats(float* to, const float (&values)[width]) {
    constexpr int piece = width % 4 == 0 ? 4 : 1;
    float sums[width];
#pragma unroll
    for (int i = 0; i < width; i += piece) {
        const Pack<float, piece> before = load_pack<piece>(to + i);
#pragma unroll
        for (int e = 0; e < piece; ++e) sums[i + e] = before.at[e] + values[i + e];
    }
    store_floats(to, sums);
}

// A block adds tile_rows sorted rows, in its columns. A run of one id within the tile goes to the table's gradient;
// what continues from the previous tile to partials[tile][0], what continues into the next to partials[tile][1].
template <class T, int width>
__global__ void __launch_bounds__(threads)
    add_tiles_kernel(float* __restrict__ dtable, float* __restrict__ partials, std::int32_t* __restrict__ first_ids,
                     const std::int32_t* __restrict__ order, TableRows ids, const T* __restrict__ dy, std::int64_t rows,
                     std::int64_t row_width) {
    std::int32_t* const row_of = shared_memory<std::int32_t>();  // [tile_rows]
    std::int32_t* const id_of = row_of + tile_rows;              // [tile_rows + 2]: before, in, and behind the tile
    const std::int64_t tile = blockIdx.x, first = tile * tile_rows;
    int count = static_cast<int>(rows - first < tile_rows ? rows - first : tile_rows);
    const int thread = static_cast<int>(threadIdx.x);
    for (int i = thread; i < tile_rows + 2; i += static_cast<int>(blockDim.x)) {
        const std::int64_t place = first + i - 1;
        const bool there = place >= 0 && place < rows;
        const std::int32_t row = there ? order[place] : 0;
        id_of[i] = there ? ids[row] : -1;  // -1 is not a row of the table
        if (i > 0 && i <= tile_rows) row_of[i - 1] = row;
    }
    __syncthreads();
    if (blockIdx.y == 0 && thread == 0) first_ids[tile] = id_of[1];
    const std::int64_t column = (static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * width;
    while (count > 0 && ids.outside(id_of[count])) --count;  // outside ids are last
    if (column >= row_width || count == 0) return;

    float sums[width] = {};
    int begin = 0;  // of the current id, within the tile
    const auto finish = [&](int end) {
        const std::int32_t id = id_of[end];  // of the tile's row end - 1
        const bool from_before = begin == 0 && id_of[0] == id;
        const bool goes_on = end == count && id_of[count + 1] == id;
        if (from_before || goes_on) {
            store_floats(partials + (2 * tile + (from_before ? 0 : 1)) * row_width + column, sums);
        } else {
            add_floats(dtable + static_cast<std::int64_t>(id) * row_width + column, sums);
        }
#pragma unroll
        for (int e = 0; e < width; ++e) sums[e] = 0;
        begin = end;
    };
    for (int i = 0; i < count; i += in_flight) {
        Pack<T, width> values[in_flight];
#pragma unroll
        for (int k = 0; k < in_flight; ++k)
            if (i + k < count)
                values[k] = load_pack<width>(dy + static_cast<std::int64_t>(row_of[i + k]) * row_width + column);
#pragma unroll
        for (int k = 0; k < in_flight; ++k) {
            if (i + k >= count) break;
            if (i + k > begin && id_of[i + k + 1] != id_of[i + k]) finish(i + k);
#pragma unroll
            for (int e = 0; e < width; ++e) sums[e] += to_float(values[k].at[e]);
        }
    }
    finish(count);
}

// Ids that continue beyond their first tile: one block per tile and slab of columns.
__global__ void __launch_bounds__(threads)
    join_tiles_kernel(float* __restrict__ dtable, const float* __restrict__ partials,
                      const std::int32_t* __restrict__ first_ids, const std::int32_t* __restrict__ order, TableRows ids,
                      std::int64_t tiles, std::int64_t row_width) {
    const std::int64_t tile = blockIdx.x, last_of_tile = (tile + 1) * tile_rows - 1;
    if (tile + 1 >= tiles) return;
    const std::int32_t id = ids[order[last_of_tile]];
    if (first_ids[tile + 1] != id || ids.outside(id)) return;
    if (first_ids[tile] == id && tile > 0 && ids[order[tile * tile_rows - 1]] == id) return;  // began earlier
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.y) * threads + threadIdx.x;
    if (column >= row_width) return;
    std::int64_t end = tile + 2, above = tiles;  // the first tile from tile + 2 on that does not start with the id
    while (end < above) {
        const std::int64_t middle = end + (above - end) / 2;
        if (first_ids[middle] == id)
            end = middle + 1;
        else
            above = middle;
    }
    float sum = partials[(2 * tile + 1) * row_width + column];
#pragma unroll 8
    for (std::int64_t t = tile + 1; t < end; ++t) sum += partials[2 * t * row_width + column];
    dtable[static_cast<std::int64_t>(id) * row_width + column] += sum;
}

// One block per position and slab of columns.
template <class T, int width>
__global__ void __launch_bounds__(threads)
    add_positions_kernel(float* __restrict__ dposition, const T* __restrict__ dy, std::int64_t sequences,
                         std::int64_t length, std::int64_t row_width) {
    const std::int64_t place = blockIdx.x;
    const std::int64_t column = (static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * width;
    if (column >= row_width) return;
    float sums[width] = {};
    for (std::int64_t first = 0; first < sequences; first += in_flight) {
        Pack<T, width> values[in_flight];
#pragma unroll
        for (int k = 0; k < in_flight; ++k)
            if (first + k < sequences)
                values[k] = load_pack<width>(dy + ((first + k) * length + place) * row_width + column);
#pragma unroll
        for (int k = 0; k < in_flight; ++k) {
            if (first + k >= sequences) break;
#pragma unroll
            for (int e = 0; e < width; ++e) sums[e] += to_float(values[k].at[e]);
        }
    }
    add_floats(dposition + place * row_width + column, sums);
}

// Threads of a block for a row of `packs` packs.
unsigned row_threads(std::int64_t packs) {
    return std::min(threads, blocks_for(packs, warp_width) * warp_width);
}

TableRows table_rows(const Tensor& ids, std::int64_t first_id, std::int64_t rows) {
    constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
    LOCKSTEP_ASSERT(first_id >= 0 && first_id <= most && rows < most);
    return {ids.as<std::int32_t>(), static_cast<std::uint32_t>(first_id), static_cast<std::uint32_t>(rows)};
}

}  // namespace

void CudaBackend::embedding_forward(Tensor y, Tensor ids, Tensor table, std::int64_t first_id, Tensor position,
                                    std::int64_t length, std::int64_t first_position) {
    const std::int64_t width = table.size(-1), rows = ids.count();
    LOCKSTEP_ASSERT(y.type() == table.type() && y.count() == rows * width && length > 0 && first_position >= 0);
    LOCKSTEP_ASSERT(position.empty() || (position.type() == y.type() && position.size(-1) == width &&
                                         first_position + length <= position.rows()));
    const TableRows id = table_rows(ids, first_id, table.rows());
    dispatch(y.type(), [&](auto element) {
        using T = decltype(element);
        const auto run_kernel = [&](auto kernel) {
            launch({"embedding_forward", dim3(blocks_for(rows, threads / warp_width)), threads, 0, stream()}, kernel,
                   elements<T>(y), id, elements<T>(table), elements<T>(position), rows, width, length, first_position);
        };
        constexpr int pack = pack_width<T>();
        if (aligned_for(pack, width, elements<T>(y), elements<T>(table), elements<T>(position)))
            run_kernel(embedding_forward_kernel<T, pack>);
        else
            run_kernel(embedding_forward_kernel<T, 1>);
    });
}

void CudaBackend::embedding_backward(Tensor dtable, Tensor dposition, Tensor ids, Tensor dy, std::int64_t first_id,
                                     std::int64_t length) {
    const std::int64_t width = dtable.size(-1), vocabulary = dtable.rows(), rows = ids.count();
    LOCKSTEP_ASSERT(dy.count() == rows * width && length > 0 && rows % length == 0);
    LOCKSTEP_ASSERT(dposition.empty() || (dposition.size(-1) == width && length <= dposition.rows()));
    LOCKSTEP_ASSERT(rows <= std::numeric_limits<std::int32_t>::max());
    if (rows == 0) return;
    const std::int64_t tiles = (rows + tile_rows - 1) / tile_rows;
    float* const partials = scratch_of<float>(2 * tiles * width + rows + tiles);
    std::int32_t* const order = reinterpret_cast<std::int32_t*>(partials + 2 * tiles * width);
    std::int32_t* const first_ids = order + rows;
    const TableRows id = table_rows(ids, first_id, vocabulary);
    // One more id than the table has, for those outside.
    launch({"order_rows", dim3(blocks_for(vocabulary + 1, run)), order_threads,
            static_cast<std::size_t>((order_warps + 1) * run + order_warps) * sizeof(std::int32_t), stream()},
           order_rows_kernel, order, id, rows);
    dispatch(dy.type(), [&](auto element) {
        using T = decltype(element);
        const auto run_kernels = [&](auto add_tiles, auto add_positions, int pack) {
            const unsigned block = row_threads(width / pack), slabs = blocks_for(width / pack, block);
            launch({"embedding_backward", dim3(static_cast<unsigned>(tiles), slabs), block,
                    static_cast<std::size_t>(2 * tile_rows + 2) * sizeof(std::int32_t), stream()},
                   add_tiles, dtable.fp32(), partials, first_ids, order, id, elements<T>(dy), rows, width);
            if (!dposition.empty())
                launch({"embedding_position", dim3(static_cast<unsigned>(length), slabs), block, 0, stream()},
                       add_positions, dposition.fp32(), elements<T>(dy), rows / length, length, width);
        };
        constexpr int pack = pack_width<T>();
        const float* const positions = dposition.empty() ? nullptr : dposition.fp32();
        if (aligned_for(pack, width, elements<T>(dy)) && aligned_for(4, width, dtable.fp32(), positions, partials))
            run_kernels(add_tiles_kernel<T, pack>, add_positions_kernel<T, pack>, pack);
        else
            run_kernels(add_tiles_kernel<T, 1>, add_positions_kernel<T, 1>, 1);
    });
    launch({"embedding_join", dim3(static_cast<unsigned>(tiles), blocks_for(width, threads)), threads, 0, stream()},
           join_tiles_kernel, dtable.fp32(), partials, first_ids, order, id, tiles, width);
}

}  // namespace lockstep::kernels::cuda
