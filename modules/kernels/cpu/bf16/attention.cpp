// Attention of one bf16 head in tiles, of AMX or of vector registers. As in vector/attention.cpp the scores are stored
// keys × queries, so that a query is a lane. Products take bf16: weights and the scores' gradients are rounded before
// they are multiplied, as on GPUs; sums, softmax and its statistics are fp32. Keys are taken in whole tiles, where
// those that a query does not see have weight 0: an infinite value makes NaN of all results of its tile.
#include "kernels/cpu/vector/attention.hpp"

#include "kernels/cpu/vector/attention_parts.hpp"
#ifdef LOCKSTEP_AMX
#include "kernels/cpu/bf16/tiles_in_amx.hpp"
#else
#include "kernels/cpu/bf16/tiles_in_avx512.hpp"
#endif

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {
namespace {

using Head = AttentionHead<bf16>;

constexpr std::int64_t lanes = attention_query_tile, key_tile = attention_key_tile;
static_assert(lanes == 64 && key_tile == lanes);  // bits of a mask; sizes that are right for both
constexpr std::int64_t registers = lanes / side;  // that a row of scores fills
constexpr std::int64_t panels = lanes / side, panel_tiles = lanes / depth;  // of a tile of queries or keys
constexpr float log2_e = 1.44269504088896341f, ln_2 = 0.69314718055994531f;

// Sizes of a head's packed operands, in bf16, and where they lie in scratch.
struct Sizes {
    Sizes(std::int64_t key_length, std::int64_t width)
        : width_tiles((width + depth - 1) / depth),
          width_panels(2 * width_tiles),
          key_tiles((key_length + key_tile - 1) / key_tile),
          by_width(panels * width_tiles * tile),
          by_row(width_panels * panel_tiles * tile) {}
    std::int64_t width_tiles, width_panels;  // terms, or rows, of a head's width
    std::int64_t key_tiles;
    std::int64_t by_width;  // a tile of queries or keys, multiplied along the width
    std::int64_t by_row;    // multiplied along its queries or keys
};
constexpr std::int64_t square = panels * panel_tiles * tile;  // of weights, bf16

std::int64_t forward_scratch(std::int64_t key_length, std::int64_t width) {
    const Sizes sizes(key_length, width);
    return (sizes.key_tiles * (sizes.by_width + sizes.by_row) + sizes.by_width + square) / 2 +
           lanes * (key_tile + sizes.width_panels * side);
}
std::int64_t backward_scratch(std::int64_t key_length, std::int64_t width) {
    const Sizes sizes(key_length, width);
    return (sizes.key_tiles * (2 * sizes.by_width + sizes.by_row) + 2 * (sizes.by_width + sizes.by_row) + 3 * square) /
               2 +
           lanes * (2 * key_tile + attention_gradient_row(width));
}

// Cuts pieces from scratch.
class Room {
  public:
    explicit Room(float* scratch) : at_(scratch) {}
    float* fp32(std::int64_t count) {
        float* const from = at_;
        at_ += count;
        return from;
    }
    bf16* packed(std::int64_t count) { return reinterpret_cast<bf16*>(fp32(count / 2)); }

  private:
    float* at_;
};

// `count` rows of a head, at most a tile of them; `along_rows`: to be summed over the rows, otherwise over the width.
struct Rows {
    const bf16* data;
    std::int64_t stride, count, width;
};
template <class Pack>
void pack_rows(bf16* packed, const Rows& rows, bool along_rows, const Sizes& sizes, Pack pack_panels) {
    const std::int64_t all = along_rows ? rows.width : rows.count, pairs = along_rows ? sizes.width_tiles : panels / 2;
    const std::int64_t tiles = along_rows ? panel_tiles : sizes.width_tiles;
    for (std::int64_t pair = 0; pair < pairs; ++pair) {
        const std::int64_t first = pair * 2 * side, count = least(2 * side, all - first);
        pack_panels(packed + pair * 2 * tiles * tile,
                    TileFunctions::Panels{count > 0 ? rows.data + first * (along_rows ? 1 : rows.stride) : rows.data,
                                          rows.stride, along_rows, count > 0 ? count : 0,
                                          along_rows ? rows.count : rows.width, tiles});
    }
}

// 2^x to 2e-7, for x of at most 128; 0 where the result would not be a normal number; NaN of NaN.
inline __m512 power_of_2(__m512 x) {
    const __mmask16 normal = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
    const __m512 whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 r = _mm512_sub_ps(x, whole);  // |r| <= 1/2
    // The polynomial of least relative error that is 1 at 0.
    __m512 p = _mm512_set1_ps(1.32647273e-3f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(9.67151299e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.55073358e-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(2.40222424e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(6.93147004e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    return _mm512_maskz_scalef_ps(normal, p, whole);  // subnormal results would cost a hundred cycles each
}

// Bit i: lane i sees the key.
std::uint64_t mask_of(const Lanes& see) {
    if (see.begin >= see.end) return 0;
    const std::uint64_t below_end = see.end >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << see.end) - 1;
    return below_end & ~((std::uint64_t{1} << see.begin) - 1);
}

inline __mmask16 lanes_of(std::uint64_t mask, std::int64_t number) {
    return static_cast<__mmask16>(mask >> (number * side));
}

// Two rows of a right operand's terms, side by side: row `pair` of its panels.
inline void store_pair(bf16* right, std::int64_t pair, const __m512 (&even)[registers],
                       const __m512 (&odd)[registers]) {
    for (std::int64_t i = 0; i < registers; ++i) {
        const auto low = _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(even[i])));
        const auto high = _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(odd[i])));
        _mm512_store_si512(right + ((i * panel_tiles + pair / side) * side + pair % side) * depth,
                           _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
}

// A row of a left operand.
inline void store_row(bf16* left, std::int64_t row, const __m512 (&values)[registers]) {
    for (std::int64_t t = 0; t < panel_tiles; ++t)
        _mm512_store_si512(left + ((row / side * panel_tiles + t) * side + row % side) * depth,
                           reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(values[2 * t + 1], values[2 * t])));
}

// Rows of `count` queries from sums [width, lanes], each times its factor.
void store_transposed(bf16* rows, std::int64_t stride, std::int64_t count, std::int64_t width, const float* sums,
                      const float* factors) {
    for (std::int64_t query = 0; query < count; query += side) {
        const __m512 factor = _mm512_load_ps(factors + query);
        for (std::int64_t column = 0; column < width; column += side) {
            Words words;
            for (std::int64_t i = 0; i < side; ++i)
                words.of[i] =
                    _mm512_castps_si512(_mm512_mul_ps(_mm512_load_ps(sums + (column + i) * lanes + query), factor));
            words = transposed(words);
            const auto mask = static_cast<__mmask16>((std::uint32_t{1} << least(side, width - column)) - 1);
            for (std::int64_t i = 0; i < least(side, count - query); ++i)
                _mm256_mask_storeu_epi16(
                    rows + (query + i) * stride + column, mask,
                    reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_castsi512_ps(words.of[i]))));
        }
    }
}

// Running statistics of a tile's queries, base 2.
struct Softmax {
    __m512 highest[registers], total[registers];
};

// Scores become weights, as the right operand of the next product. Returns whether what was summed before is to be
// multiplied by `correction`.
bool weigh(bf16* weights, Softmax& softmax, float* correction, float* scores, const Head& head,
           SeeingLanes<bf16>& seeing, std::int64_t from) {
    __m512 highest[registers];
    for (std::int64_t i = 0; i < registers; ++i) highest[i] = softmax.highest[i];
    const __m512 nothing = _mm512_set1_ps(-__builtin_inff());
    for (std::int64_t j = 0; j < key_tile; ++j) {
        float* const line = scores + j * lanes;
        const bool exists = from + j < head.key_length;
        const __m512 scale = _mm512_set1_ps(log2_e * cap_scores(head, line, lanes));
        const std::uint64_t see = exists ? mask_of(seeing.of(from + j)) : 0;
        for (std::int64_t i = 0; i < registers; ++i) {
            const __m512 score = _mm512_mask_mul_ps(nothing, lanes_of(see, i), _mm512_load_ps(line + i * side), scale);
            _mm512_store_ps(line + i * side, score);
            highest[i] = _mm512_max_ps(score, highest[i]);  // of NaN and a number, the second operand
        }
    }
    bool raised = false;
    for (std::int64_t i = 0; i < registers; ++i) {
        raised |= _mm512_cmp_ps_mask(highest[i], softmax.highest[i], _CMP_NEQ_UQ) != 0;
        const __m512 factor = power_of_2(_mm512_sub_ps(softmax.highest[i], highest[i]));
        _mm512_store_ps(correction + i * side, factor);
        softmax.total[i] = _mm512_mul_ps(softmax.total[i], factor);
        softmax.highest[i] = highest[i];
    }
    for (std::int64_t pair = 0; pair < key_tile / 2; ++pair) {
        __m512 even[registers], odd[registers];
        const float* const line = scores + 2 * pair * lanes;
        for (std::int64_t i = 0; i < registers; ++i) {
            even[i] = power_of_2(_mm512_sub_ps(_mm512_load_ps(line + i * side), highest[i]));
            odd[i] = power_of_2(_mm512_sub_ps(_mm512_load_ps(line + lanes + i * side), highest[i]));
            softmax.total[i] = _mm512_add_ps(softmax.total[i], _mm512_add_ps(even[i], odd[i]));
        }
        store_pair(weights, pair, even, odd);
    }
    return raised;
}

void forward(const Head& head, bf16* y, float* log_sum_exp, std::int64_t first, std::int64_t count, float* scratch) {
    [[maybe_unused]] const Tiles configured{};
    const std::int64_t width = head.width;
    const Keys all = keys_seen(head, first, first + count);
    const std::int64_t begin = all.begin / key_tile * key_tile;
    const Sizes sizes(head.key_length, width);
    Room room(scratch);
    bf16* const keys = room.packed(sizes.key_tiles * sizes.by_width);
    bf16* const values = room.packed(sizes.key_tiles * sizes.by_row);
    bf16* const queries = room.packed(sizes.by_width);
    bf16* const weights = room.packed(square);
    float* const scores = room.fp32(key_tile * lanes);
    float* const sums = room.fp32(sizes.width_panels * side * lanes);
    for (std::int64_t from = begin; from < all.end; from += key_tile) {
        const std::int64_t number = (from - begin) / key_tile, some = least(key_tile, head.key_length - from);
        pack_rows(keys + number * sizes.by_width, {head.k + from * head.key_stride, head.key_stride, some, width},
                  false, sizes, pack_left);
        pack_rows(values + number * sizes.by_row, {head.v + from * head.value_stride, head.value_stride, some, width},
                  true, sizes, pack_left);
    }
    for (std::int64_t last = first + count; first < last; first += lanes) {
        const std::int64_t some = least(lanes, last - first);
        pack_rows(queries, {head.q + first * head.query_stride, head.query_stride, some, width}, false, sizes,
                  pack_right);
        Softmax softmax;
        for (std::int64_t i = 0; i < registers; ++i) {
            softmax.highest[i] = _mm512_set1_ps(lowest_score);
            softmax.total[i] = _mm512_setzero_ps();
        }
        const Keys seen = keys_seen(head, first, first + some);
        const std::int64_t from_first = seen.begin / key_tile * key_tile;
        SeeingLanes<bf16> seeing(head, first, some, lanes);
        if (seen.begin == seen.end)
            for (std::int64_t i = 0; i < width * lanes; ++i) sums[i] = 0.0f;
        for (std::int64_t from = from_first; from < seen.end; from += key_tile) {
            const std::int64_t number = (from - begin) / key_tile;
            multiply_tiles(
                {scores, lanes, keys + number * sizes.by_width, queries, panels, panels, sizes.width_tiles, false});
            alignas(64) float correction[lanes];
            if (weigh(weights, softmax, correction, scores, head, seeing, from) && from > from_first)
                for (std::int64_t c = 0; c < width; ++c)
                    for (std::int64_t i = 0; i < lanes; i += side)
                        _mm512_store_ps(sums + c * lanes + i, _mm512_mul_ps(_mm512_load_ps(sums + c * lanes + i),
                                                                            _mm512_load_ps(correction + i)));
            multiply_tiles({sums, lanes, values + number * sizes.by_row, weights, sizes.width_panels, panels,
                            panel_tiles, from > from_first});
        }
        alignas(64) float highest[lanes], total[lanes];
        for (std::int64_t i = 0; i < registers; ++i) {
            _mm512_store_ps(highest + i * side, softmax.highest[i]);
            _mm512_store_ps(total + i * side, softmax.total[i]);
        }
        for (std::int64_t i = 0; i < some; ++i)
            log_sum_exp[first + i] =
                (highest[i] > lowest_score ? ln_2 * highest[i] : highest[i]) + __builtin_logf(total[i]);
        for (std::int64_t i = 0; i < lanes; ++i) total[i] = total[i] > 0 ? 1.0f / total[i] : total[i];  // 0: no key
        store_transposed(y + first * head.output_stride, head.output_stride, some, width, sums, total);
    }
}

// A tile of keys' scores and gradients of weights, [key_tile, lanes].
struct Gradients {
    const float* scores;
    const float* of_weights;
    const float* along;  // [lanes]: Σ_c dy y
    const float* level;  // [lanes]: log_sum_exp, base 2
};
// Operands of the products that follow: weights and gradients of scores as rows, and the latter as pairs.
struct Operands {
    bf16 *weights, *rows, *pairs;
};
void differentiate(const Operands& operands, const Gradients& gradients, const Head& head, SeeingLanes<bf16>& seeing,
                   std::int64_t from) {
    const bool capped = head.score_cap > 0;
    const __m512 head_scale = _mm512_set1_ps(head.scale), one = _mm512_set1_ps(1.0f);
    const __m512 inverse_cap = _mm512_set1_ps(capped ? 1.0f / head.score_cap : 0.0f);
    for (std::int64_t pair = 0; pair < key_tile / 2; ++pair) {
        __m512 ds[2][registers];
        for (std::int64_t odd = 0; odd < 2; ++odd) {
            const std::int64_t j = 2 * pair + odd;
            alignas(64) float capped_scores[lanes];
            const float* line = gradients.scores + j * lanes;
            float factor = head.scale;
            if (capped) {
                for (std::int64_t i = 0; i < lanes; ++i) capped_scores[i] = line[i];
                factor = cap_scores(head, capped_scores, lanes);
                line = capped_scores;
            }
            const __m512 scale = _mm512_set1_ps(log2_e * factor);
            const std::uint64_t see = from + j < head.key_length ? mask_of(seeing.of(from + j)) : 0;
            __m512 p[registers];
            for (std::int64_t i = 0; i < registers; ++i) {
                const __m512 score = _mm512_load_ps(line + i * side);
                const __mmask16 mask = lanes_of(see, i);
                p[i] = power_of_2(_mm512_fmsub_ps(score, scale, _mm512_load_ps(gradients.level + i * side)));
                p[i] = _mm512_maskz_mov_ps(mask, p[i]);
                __m512 slope = head_scale;
                if (capped) {
                    const __m512 share = _mm512_mul_ps(inverse_cap, score);
                    slope = _mm512_mul_ps(slope, _mm512_fnmadd_ps(share, share, one));
                }
                const __m512 difference = _mm512_sub_ps(_mm512_load_ps(gradients.of_weights + j * lanes + i * side),
                                                        _mm512_load_ps(gradients.along + i * side));
                ds[odd][i] = _mm512_maskz_mul_ps(mask, _mm512_mul_ps(slope, p[i]), difference);
            }
            store_row(operands.weights, j, p);
            store_row(operands.rows, j, ds[odd]);
        }
        store_pair(operands.pairs, pair, ds[0], ds[1]);
    }
}

// As vector/attention.cpp: P, dV += P dY, dP = V dYᵀ, dS, dK += dS Q, dQ += dSᵀ K.
void backward(const Head& head, bf16* dq, std::int64_t dq_stride, float* dk, float* dv, const bf16* dy, const bf16* y,
              const float* log_sum_exp, float* scratch) {
    [[maybe_unused]] const Tiles configured{};
    const std::int64_t width = head.width, stride = head.output_stride, gradient_row = attention_gradient_row(width);
    const Sizes sizes(head.key_length, width);
    Room room(scratch);
    bf16* const keys = room.packed(sizes.key_tiles * sizes.by_width);
    bf16* const values = room.packed(sizes.key_tiles * sizes.by_width);
    bf16* const keys_along = room.packed(sizes.key_tiles * sizes.by_row);
    bf16* const queries = room.packed(sizes.by_width);
    bf16* const gradients = room.packed(sizes.by_width);
    bf16* const queries_along = room.packed(sizes.by_row);
    bf16* const gradients_along = room.packed(sizes.by_row);
    const Operands operands{room.packed(square), room.packed(square), room.packed(square)};
    float* const scores = room.fp32(key_tile * lanes);
    float* const of_weights = room.fp32(key_tile * lanes);
    float* const dq_sums = room.fp32(gradient_row * lanes);
    alignas(64) float ones[lanes];
    for (std::int64_t i = 0; i < lanes; ++i) ones[i] = 1.0f;

    for (std::int64_t number = 0; number < sizes.key_tiles; ++number) {
        const std::int64_t from = number * key_tile, some = least(key_tile, head.key_length - from);
        const Rows k{head.k + from * head.key_stride, head.key_stride, some, width},
            v{head.v + from * head.value_stride, head.value_stride, some, width};
        pack_rows(keys + number * sizes.by_width, k, false, sizes, pack_left);
        pack_rows(values + number * sizes.by_width, v, false, sizes, pack_left);
        pack_rows(keys_along + number * sizes.by_row, k, true, sizes, pack_left);
    }
    for (std::int64_t first = 0; first < head.query_length; first += lanes) {
        const std::int64_t count = least(lanes, head.query_length - first);
        const Rows q{head.q + first * head.query_stride, head.query_stride, count, width},
            d{dy + first * stride, stride, count, width};
        pack_rows(queries, q, false, sizes, pack_right);
        pack_rows(gradients, d, false, sizes, pack_right);
        pack_rows(queries_along, q, true, sizes, pack_right);
        pack_rows(gradients_along, d, true, sizes, pack_right);
        alignas(64) float along[lanes], level[lanes];
        for (std::int64_t i = 0; i < lanes; ++i) along[i] = level[i] = 0.0f;
        for (std::int64_t i = 0; i < count; ++i) {
            const bf16 *const out = y + (first + i) * stride, *const gradient = dy + (first + i) * stride;
            float sum = 0;
#pragma omp simd reduction(+ : sum)
            for (std::int64_t c = 0; c < width; ++c) sum += to_float(gradient[c]) * to_float(out[c]);
            along[i] = sum;
            level[i] = log2_e * log_sum_exp[first + i];
        }
        const Keys seen = keys_seen(head, first, first + count);
        const std::int64_t from_first = seen.begin / key_tile * key_tile;
        if (seen.begin == seen.end)
            for (std::int64_t i = 0; i < width * lanes; ++i) dq_sums[i] = 0.0f;
        SeeingLanes<bf16> seeing(head, first, count, lanes);
        for (std::int64_t from = from_first; from < seen.end; from += key_tile) {
            const std::int64_t number = from / key_tile;
            multiply_tiles(
                {scores, lanes, keys + number * sizes.by_width, queries, panels, panels, sizes.width_tiles, false});
            multiply_tiles({of_weights, lanes, values + number * sizes.by_width, gradients, panels, panels,
                            sizes.width_tiles, false});
            differentiate(operands, {scores, of_weights, along, level}, head, seeing, from);
            multiply_tiles({dv + from * gradient_row, gradient_row, operands.weights, gradients_along, panels,
                            sizes.width_panels, panel_tiles, true});
            multiply_tiles({dk + from * gradient_row, gradient_row, operands.rows, queries_along, panels,
                            sizes.width_panels, panel_tiles, true});
            multiply_tiles({dq_sums, lanes, keys_along + number * sizes.by_row, operands.pairs, sizes.width_panels,
                            panels, panel_tiles, from > from_first});
        }
        store_transposed(dq + first * dq_stride, dq_stride, count, width, dq_sums, ones);
    }
}

}  // namespace

constinit const Attention<bf16> attention_bf16 = {forward_scratch, backward_scratch, forward, backward, join<bf16>};

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA
