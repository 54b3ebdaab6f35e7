#include "kernels/cpu/vector/delta.hpp"

#include "kernels/cpu/vector/delta_chunk.hpp"
#include "kernels/cpu/vector/math.hpp"
#include "kernels/cpu/vector/vector.hpp"

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {
namespace {

// log(1 + exp(x)) = max(x, 0) + log(1 + e), e = exp(-|x|) <= 1; log(1 + e) = 2 artanh(z), z = e / (2 + e) <= 1/3, whose
// series keeps the relative error of small e.
float softplus(float x) {
    const float e = exponential(x < 0.0f ? x : -x), z = e / (2.0f + e), square = z * z;
    float series = square * (1.0f / 15) + 1.0f / 13;
    series = series * square + 1.0f / 11;
    series = series * square + 1.0f / 9;
    series = series * square + 1.0f / 7;
    series = series * square + 1.0f / 5;
    series = series * square + 1.0f / 3;
    return (x > 0.0f ? x : 0.0f) + 2.0f * (z + z * (series * square));
}

// body(from, count) over blocks of a row: of fp32 copies, as elementwise.cpp explains.
constexpr std::int64_t gate_block = 64;
template <class Body>
void for_gate_blocks(std::int64_t heads, Body&& body) {
    for (std::int64_t from = 0; from < heads; from += gate_block) body(from, least(gate_block, heads - from));
}

template <class T>
void gates_forward(float* log_decay, float* strength, const T* decay_logit, const T* strength_logit, const float* rate,
                   const float* decay_bias, std::int64_t heads) {
    for_gate_blocks(heads, [&](std::int64_t from, std::int64_t count) {
        float decay[gate_block], strong[gate_block];
        for (std::int64_t i = 0; i < count; ++i) {
            decay[i] = to_float(decay_logit[from + i]) + decay_bias[from + i];
            strong[i] = to_float(strength_logit[from + i]);
        }
#pragma omp simd
        for (std::int64_t i = 0; i < count; ++i) {
            log_decay[from + i] = rate[from + i] * softplus(decay[i]);
            strength[from + i] = sigmoid(strong[i]);
        }
    });
}

template <class T>
void gates_backward(T* ddecay_logit, T* dstrength_logit, float* dlog_rate, float* ddecay_bias, const float* dlog_decay,
                    const float* dstrength, const T* decay_logit, const float* strength, const float* rate,
                    const float* decay_bias, std::int64_t heads) {
    for_gate_blocks(heads, [&](std::int64_t from, std::int64_t count) {
        float decay[gate_block], ddecay[gate_block];
        for (std::int64_t i = 0; i < count; ++i) decay[i] = to_float(decay_logit[from + i]) + decay_bias[from + i];
#pragma omp simd
        for (std::int64_t i = 0; i < count; ++i) {
            const float scaled = dlog_decay[from + i] * rate[from + i];
            ddecay[i] = scaled * sigmoid(decay[i]);
            ddecay_bias[from + i] += ddecay[i];
            dlog_rate[from + i] += scaled * softplus(decay[i]);
        }
        for (std::int64_t i = 0; i < count; ++i) {
            const float s = strength[from + i];
            ddecay_logit[from + i] = from_float<T>(ddecay[i]);
            dstrength_logit[from + i] = from_float<T>(dstrength[from + i] * s * (1.0f - s));
        }
    });
}

struct ForwardBuffers {
    Shared shared;
    Side side;
    float* transposed;             // Kᵀ [fk, chunk]
    float* pairs;                  // P
    float *scaled_rows, *outputs;  // [chunk, wider of the padded widths], [chunk, padded fv]
};

std::int64_t wider(const DeltaGeometry& g) {
    return g.padded_key > g.padded_value ? g.padded_key : g.padded_value;
}

std::int64_t take_forward(ForwardBuffers& buffers, const DeltaGeometry& g, float* memory) {
    Carver carver{memory, 0};
    take_shared(buffers.shared, carver, g);
    take_side(buffers.side, carver, g);
    buffers.transposed = carver.take(g.key_width * chunk);
    buffers.pairs = carver.take(chunk * chunk);
    buffers.scaled_rows = carver.take(chunk * wider(g));
    buffers.outputs = carver.take(chunk * g.padded_value);
    return carver.used;
}

std::int64_t forward_scratch(const DeltaGeometry& g) {
    ForwardBuffers buffers;
    return take_forward(buffers, g, nullptr);
}

template <class T>
void forward(const DeltaGeometry& g, const DeltaForward<T>& task, float* scratch) {
    ForwardBuffers buffers;
    take_forward(buffers, g, scratch);
    const Shared& shared = buffers.shared;
    Side& side = buffers.side;
    float* const saved = task.checkpoints;
    for (std::int64_t start = 0, number = 0; start < g.length; start += chunk, ++number) {
        const std::int64_t tokens = least(chunk, g.length - start);
        if (saved && number > 0 && number % delta_group == 0)
            copy(saved + (number / delta_group - 1) * g.state_count(), task.state, g.state_count());
        fill_shared(g, shared, task.q, task.k, start, tokens, buffers.transposed);
        fill_side(g, side, shared, task.state, task.v, task.log_decay, task.strength, start, tokens,
                  buffers.scaled_rows);
        scale_rows(buffers.scaled_rows, shared.query, side.from_start, 1.0f, tokens, g.padded_key);
        tile_product(buffers.outputs, g.padded_value, {buffers.scaled_rows, g.padded_key, 1}, task.state,
                     g.padded_value, tokens, g.padded_value, g.key_width, false);
        decayed(buffers.pairs, side, shared.scores, tokens);
        add_lower_product(buffers.outputs, buffers.pairs, side.update, tokens, g.padded_value);
        store_rows(task.y, start, buffers.outputs, tokens, g.value_width, g.padded_value);
        if (task.last_update || start + tokens < g.length)
            update_state(g, task.state, task.state, side, shared, tokens, buffers.scaled_rows);
    }
}

struct BackwardBuffers {
    Shared shared[delta_group];
    float *dquery[delta_group], *dkey[delta_group];  // sums over the members [chunk, padded fk]
    Side sides[delta_group];
    float* states[delta_group];                   // before the chunk
    float* transposed;                            // [wider of fk and fv, chunk]
    float *scaled_rows, *dy, *dupdate, *derror;   // [chunk, padded fv]; the first: or padded fk
    float *scores, *dscores, *dgram;              // P, E ⊙ dP and D
    float *state_transposed, *dstate_transposed;  // [fv, padded fk]
    float* row_gradient;                          // [chunk, padded fk]
};

std::int64_t take_backward(BackwardBuffers& buffers, const DeltaGeometry& g, float* memory) {
    Carver carver{memory, 0};
    for (std::int64_t i = 0; i < delta_group; ++i) {
        take_shared(buffers.shared[i], carver, g);
        take_side(buffers.sides[i], carver, g);
        carver.take_each(chunk * g.padded_key, buffers.dquery[i], buffers.dkey[i]);
        buffers.states[i] = carver.take(g.state_count());
    }
    buffers.transposed = carver.take(wider(g) * chunk);
    buffers.scaled_rows = carver.take(chunk * wider(g));
    carver.take_each(chunk * g.padded_value, buffers.dy, buffers.dupdate, buffers.derror);
    carver.take_each(chunk * chunk, buffers.scores, buffers.dscores, buffers.dgram);
    carver.take_each(g.value_width * g.padded_key, buffers.state_transposed, buffers.dstate_transposed);
    buffers.row_gradient = carver.take(chunk * g.padded_key);
    return carver.used;
}

std::int64_t backward_scratch(const DeltaGeometry& g) {
    BackwardBuffers buffers;
    return take_backward(buffers, g, nullptr);
}

// The gradients of the log decays. A pair of tokens j < i is joined by the decays of the tokens j + 1 … i, and so is
// the state before the chunk with i (`row_sums`), j with the state behind it (`column_sums`), and one state with the
// other (`whole`). Sums of what passes token i, not differences of sums of all: those would drown strong decays'
// gradients in roundoff. `column_sums` is overwritten.
void decay_gradients(float* dlog_decay, std::int64_t step, const float* scores, const float* dscores, const float* gram,
                     const float* dgram, const float* row_sums, float* column_sums, float whole, std::int64_t tokens) {
    for (std::int64_t i = tokens - 1; i >= 0; --i) {
        const float *s = scores + i * chunk, *ds = dscores + i * chunk, *k = gram + i * chunk, *dk = dgram + i * chunk;
        const std::int64_t end = end_of_band(i);
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t j = 0; j < end; ++j) {
            const float column = column_sums[j] + ds[j] * s[j] + dk[j] * k[j];
            column_sums[j] = j < i ? column : 0.0f;
            sum += j < i ? column : 0.0f;
        }
        whole += row_sums[i];
        dlog_decay[i * step] = sum + whole;
    }
}

// One head's gradients of one chunk; dstate becomes that of the state before it.
template <class T>
void chunk_backward(const DeltaGeometry& g, const DeltaBackward<T>& task, const BackwardBuffers& buffers,
                    std::int64_t number, std::int64_t member, std::int64_t start, std::int64_t tokens, float* dstate) {
    const Shared& shared = buffers.shared[number];
    const Side& side = buffers.sides[number];
    const float* state = buffers.states[number];
    const std::int64_t pk = g.padded_key, pv = g.padded_value;
    const std::int64_t gate = start * g.heads + member, column = member * g.value_width;
    float row_sums[chunk] = {}, column_sums[chunk] = {};

    load_rows(buffers.dy, DeltaRows<T>{task.dy.first + column, task.dy.stride}, start, tokens, g.value_width, pv);
    // dU = Pᵀ dO + e ⊙ (K dS)
    decayed(buffers.scores, side, shared.scores, tokens);
    tile_product(buffers.dupdate, pv, {shared.key, pk, 1}, dstate, pv, tokens, pv, g.key_width, false);
    scale_rows(buffers.dupdate, buffers.dupdate, side.to_end, 1.0f, tokens, pv);
    for (std::int64_t j = 0; j < tokens; ++j) column_sums[j] = dot(side.update + j * pv, buffers.dupdate + j * pv, pv);
    const float whole = side.whole * dot(state, dstate, g.state_count());
    add_upper_product(buffers.dupdate, buffers.scores, buffers.dy, tokens, pv);
    substitute_back(side, buffers.dupdate, buffers.derror, task.strength + gate, g.heads, tokens, pv);
    for (std::int64_t i = 0; i < tokens; ++i)
        task.dstrength[gate + i * g.heads] = dot(buffers.dupdate + i * pv, side.error + i * pv, pv);
    store_rows(DeltaRows<T>{task.dv.first + column, task.dv.stride}, start, buffers.derror, tokens, g.value_width, pv);

    // E ⊙ dP = E ⊙ (dO Uᵀ), D = -E ⊙ (dR Uᵀ)
    transpose(buffers.transposed, chunk, side.update, pv, tokens, g.value_width, whole_blocks(tokens));
    pair_product(buffers.dscores, buffers.dy, pv, buffers.transposed, tokens, g.value_width);
    pair_product(buffers.dgram, buffers.derror, pv, buffers.transposed, tokens, g.value_width);
    decayed(buffers.dscores, side, buffers.dscores, tokens);
    for (std::int64_t i = 0; i < tokens; ++i) {
        const float* decays = side.decays + i * chunk;
        float* row = buffers.dgram + i * chunk;
        const std::int64_t end = end_of_band(i);
#pragma omp simd
        for (std::int64_t j = 0; j < end; ++j) row[j] = j < i ? -decays[j] * row[j] : 0.0f;
    }

    // Rows scaled for the states: dO, -dR and U.
    transpose(buffers.state_transposed, pk, state, pv, g.key_width, g.value_width, pk);
    transpose(buffers.dstate_transposed, pk, dstate, pv, g.key_width, g.value_width, pk);
    scale(dstate, dstate, side.whole, g.state_count());
    float* const gradient = buffers.row_gradient;
    const auto through_state = [&](const float* rows, float sign, const float* inputs, float* sums) {
        scale_rows(buffers.scaled_rows, rows, side.from_start, sign, tokens, pv);
        tile_product(gradient, pk, {buffers.scaled_rows, pv, 1}, buffers.state_transposed, pk, tokens, pk,
                     g.value_width, false);
        for (std::int64_t i = 0; i < tokens; ++i) row_sums[i] += dot(inputs + i * pk, gradient + i * pk, pk);
        add(sums, gradient, tokens * pk);
        tile_product(dstate, pv, {inputs, 1, pk}, buffers.scaled_rows, pv, g.key_width, pv, tokens, true);
    };
    float *dquery = buffers.dquery[number], *dkey = buffers.dkey[number];
    through_state(buffers.dy, 1.0f, shared.query, dquery);
    through_state(buffers.derror, -1.0f, shared.key, dkey);
    scale_rows(buffers.scaled_rows, side.update, side.to_end, 1.0f, tokens, pv);
    tile_product(dkey, pk, {buffers.scaled_rows, pv, 1}, buffers.dstate_transposed, pk, tokens, pk, g.value_width,
                 true);

    decay_gradients(task.dlog_decay + gate, g.heads, shared.scores, buffers.dscores, shared.gram, buffers.dgram,
                    row_sums, column_sums, whole, tokens);
    add_lower_product(dquery, buffers.dscores, shared.key, tokens, pk);
    add_upper_product(dkey, buffers.dscores, shared.query, tokens, pk);
    add_lower_product(dkey, buffers.dgram, shared.key, tokens, pk);
    add_upper_product(dkey, buffers.dgram, shared.key, tokens, pk);
}

template <class T>
void backward(const DeltaGeometry& g, const DeltaBackward<T>& task, float* scratch) {
    BackwardBuffers buffers;
    take_backward(buffers, g, scratch);
    const std::int64_t pk = g.padded_key, chunks = (g.length + chunk - 1) / chunk;
    const auto tokens_of = [&](std::int64_t number) { return least(chunk, g.length - number * chunk); };
    for (std::int64_t group = (chunks - 1) / delta_group; group >= 0; --group) {
        const std::int64_t first = group * delta_group, count = least(delta_group, chunks - first);
        for (std::int64_t c = 0; c < count; ++c) {
            const std::int64_t tokens = tokens_of(first + c);
            fill_shared(g, buffers.shared[c], task.q, task.k, (first + c) * chunk, tokens, buffers.transposed);
            set(buffers.dquery[c], 0.0f, tokens * pk);
            set(buffers.dkey[c], 0.0f, tokens * pk);
        }
        for (std::int64_t member = 0; member < task.members; ++member) {
            const float* begin =
                group == 0 ? task.states + member * g.state_count()
                           : task.checkpoints + member * task.checkpoint_count + (group - 1) * g.state_count();
            copy(buffers.states[0], begin, g.state_count());
            for (std::int64_t c = 0; c < count; ++c) {
                const std::int64_t tokens = tokens_of(first + c);
                fill_side(g, buffers.sides[c], buffers.shared[c], buffers.states[c],
                          DeltaRows<T>{task.v.first + member * g.value_width, task.v.stride}, task.log_decay + member,
                          task.strength + member, (first + c) * chunk, tokens, buffers.scaled_rows);
                if (c + 1 < count)
                    update_state(g, buffers.states[c + 1], buffers.states[c], buffers.sides[c], buffers.shared[c],
                                 tokens, buffers.scaled_rows);
            }
            for (std::int64_t c = count - 1; c >= 0; --c)
                chunk_backward(g, task, buffers, c, member, (first + c) * chunk, tokens_of(first + c),
                               task.dstates + member * g.state_count());
        }
        for (std::int64_t c = 0; c < count; ++c) {
            store_rows(task.dq, (first + c) * chunk, buffers.dquery[c], tokens_of(first + c), g.key_width, pk);
            store_rows(task.dk, (first + c) * chunk, buffers.dkey[c], tokens_of(first + c), g.key_width, pk);
        }
    }
}

std::int64_t step_scratch(const DeltaGeometry& g) {
    return 2 * (g.key_width + g.value_width) + g.value_width;
}

template <class T>
void step(const DeltaGeometry& g, const DeltaStep<T>& task, float* scratch) {
    const std::int64_t fk = g.key_width, fv = g.value_width;
    float *key = scratch, *query = key + fk, *by_key = query + fk, *by_query = by_key + fv, *update = by_query + fv;
    float product = 0;
    for (std::int64_t r = 0; r < fk; ++r) {
        key[r] = to_float(task.k[r]);
        query[r] = to_float(task.q[r]);
    }
#pragma omp simd reduction(+ : product)
    for (std::int64_t r = 0; r < fk; ++r) product += key[r] * query[r];
    tile_product(by_key, fv, {key, fk, 1}, task.before, fv, 2, fv, fk, false);
    const float decay = exponential(task.log_decay), strength = task.strength;
#pragma omp simd
    for (std::int64_t c = 0; c < fv; ++c) {
        update[c] = strength * (to_float(task.v[c]) - decay * by_key[c]);
        by_query[c] = decay * by_query[c] + product * update[c];
    }
    for (std::int64_t c = 0; c < fv; ++c) task.y[c] = from_float<T>(by_query[c]);
    for (std::int64_t r = 0; r < fk && task.after; ++r) {
        const float* from = task.before + r * fv;
        float *to = task.after + r * fv, factor = key[r];
#pragma omp simd
        for (std::int64_t c = 0; c < fv; ++c) to[c] = decay * from[c] + factor * update[c];
    }
}

template <class T>
constexpr Delta<T> table() {
    return {gates_forward<T>, gates_backward<T>, step_scratch, forward_scratch,
            backward_scratch, step<T>,           forward<T>,   backward<T>};
}

}  // namespace

constinit const Delta<float> delta_fp32 = table<float>();
constinit const Delta<bf16> delta_bf16 = table<bf16>();

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA
