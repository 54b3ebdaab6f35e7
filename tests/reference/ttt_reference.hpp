// The TTT layer's inner loop in double precision, written from the equations of docs/ttt.md, one mini-batch after the
// other and one matrix at a time: forward, backward, and token by token.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "reference/activation.hpp"

namespace lockstep::reference {
namespace ttt {

struct Matrix {
    std::size_t rows = 0, columns = 0;
    std::vector<double> data;

    Matrix() = default;
    Matrix(std::size_t m, std::size_t n, double value = 0) : rows(m), columns(n), data(m * n, value) {}
    double& operator()(std::size_t i, std::size_t j) { return data[i * columns + j]; }
    double operator()(std::size_t i, std::size_t j) const { return data[i * columns + j]; }
};

template <class Function>
Matrix elementwise(const Matrix& a, const Matrix& b, Function function) {
    Matrix c(a.rows, a.columns);
    for (std::size_t i = 0; i < a.rows; ++i)  // b may be one row, for all rows of a
        for (std::size_t j = 0; j < a.columns; ++j) c(i, j) = function(a(i, j), b(b.rows == 1 ? 0 : i, j));
    return c;
}
inline Matrix operator+(const Matrix& a, const Matrix& b) {
    return elementwise(a, b, [](double x, double y) { return x + y; });
}
inline Matrix operator-(const Matrix& a, const Matrix& b) {
    return elementwise(a, b, [](double x, double y) { return x - y; });
}
inline Matrix operator%(const Matrix& a, const Matrix& b) {  // ⊙
    return elementwise(a, b, [](double x, double y) { return x * y; });
}
inline Matrix operator*(const Matrix& a, const Matrix& b) {
    Matrix c(a.rows, b.columns);
    for (std::size_t i = 0; i < a.rows; ++i)
        for (std::size_t k = 0; k < a.columns; ++k)
            for (std::size_t j = 0; j < b.columns; ++j) c(i, j) += a(i, k) * b(k, j);
    return c;
}
inline Matrix operator*(double factor, Matrix a) {
    for (double& x : a.data) x *= factor;
    return a;
}
inline Matrix transposed(const Matrix& a) {
    Matrix c(a.columns, a.rows);
    for (std::size_t i = 0; i < a.rows; ++i)
        for (std::size_t j = 0; j < a.columns; ++j) c(j, i) = a(i, j);
    return c;
}
inline Matrix column_sums(const Matrix& a) {
    return Matrix(1, a.rows, 1.0) * a;
}
inline Matrix row_means(const Matrix& a) {  // the mean of each row in all its columns
    Matrix c(a.rows, a.columns);
    for (std::size_t i = 0; i < a.rows; ++i) {
        double sum = 0;
        for (std::size_t j = 0; j < a.columns; ++j) sum += a(i, j);
        for (std::size_t j = 0; j < a.columns; ++j) c(i, j) = sum / static_cast<double>(a.columns);
    }
    return c;
}
inline Matrix scaled_rows(const std::vector<double>& factors, Matrix a) {
    for (std::size_t i = 0; i < a.rows; ++i)
        for (std::size_t j = 0; j < a.columns; ++j) a(i, j) *= factors[i];
    return a;
}
template <class Function>
Matrix map(Matrix a, Function function) {
    for (double& x : a.data) x = function(x);
    return a;
}

}  // namespace ttt

// Inner models: [B, H, …] of each sequence and head, shapes as in kernels/backend.hpp; empty where there are none.
struct TttModels {
    Values weight1, bias1, weight2, bias2;
    bool empty() const { return weight1.empty(); }
};

struct TttProblem {
    bool mlp = false;
    std::size_t batch = 1, length = 1, heads = 1, width = 1, mini_batch = 16;
    // q, k, v [B·L, H·f]; step_size [B·L, H]; token_scale [b]; the others as in kernels/backend.hpp.
    Values q, k, v, step_size, token_scale, weight1, bias1, weight2, bias2, norm_weight, norm_bias;
    TttModels initial;  // what sequences start from; empty: weight1 …
    // Documents that share a sequence, as in kernels/backend.hpp: [B, positions]; empty: a sequence is one document.
    Values starts, ends;
    std::size_t positions = 0, first_position = 0;

    std::size_t hidden() const { return mlp ? 4 * width : width; }
    bool joined() const { return starts.empty(); }
};

namespace ttt {

struct Norm {
    Matrix normal, deviation;  // X̂ and σ, the latter in all columns
};
inline Norm normalise(const Matrix& z) {
    const Matrix centred = z - row_means(z);
    const Matrix deviation = map(row_means(centred % centred), [](double x) { return std::sqrt(x + 1e-6); });
    return {elementwise(centred, deviation, [](double x, double y) { return x / y; }), deviation};
}
inline Matrix divided(const Matrix& a, const Matrix& b) {
    return elementwise(a, b, [](double x, double y) { return x / y; });
}

struct Loss {
    Norm norm;
    Matrix difference, u, gradient;  // D, U, G
};
inline Loss loss_gradient(const Matrix& z, const Matrix& target, const Matrix& gamma, const Matrix& beta) {
    Loss c;
    c.norm = normalise(z);
    const Matrix& x = c.norm.normal;
    c.difference = x % gamma + beta - target;
    c.u = c.difference % gamma;
    c.gradient = divided(c.u - row_means(c.u) - x % row_means(c.u % x), c.norm.deviation);
    return c;
}
struct LossBackward {
    Matrix dz, dtarget, dgamma, dbeta;
};
inline LossBackward loss_backward(const Matrix& dgradient, const Loss& c, const Matrix& gamma) {
    const Matrix &x = c.norm.normal, b = divided(dgradient, c.norm.deviation), m = row_means(b % x);
    const Matrix du = b - row_means(b) - x % m, dd = du % gamma;
    const Matrix dx = dd % gamma - b % row_means(c.u % x) - c.u % m;
    const Matrix dz =
        divided(dx - row_means(dx) - x % (row_means(dx % x) + row_means(dgradient % c.gradient)), c.norm.deviation);
    return {dz, -1.0 * dd, column_sums(du % c.difference + dd % x), column_sums(dd)};
}

struct State {
    Matrix weight1, bias1, weight2, bias2;
};

// One mini-batch of one head: what forward computes and backward needs.
struct MiniBatch {
    Matrix q, k;
    std::vector<double> tau, lambda, last;  // last: e
    Matrix step;                            // E with the mask
    State state;
    Matrix z1, x2, j, g1, s1, p1, read1, read2, s2, p2;
    Loss loss;
    Norm out;
};

inline Matrix masked(Matrix a) {
    for (std::size_t i = 0; i < a.rows; ++i)
        for (std::size_t j = i + 1; j < a.columns; ++j) a(i, j) = 0;
    return a;
}

// Computes O, and leaves the state after the mini-batch in `state`.
inline Matrix forward(MiniBatch& c, State& state, const Matrix& v, const Matrix& gamma, const Matrix& beta, bool mlp) {
    const std::size_t r = c.q.rows;
    c.state = state;
    c.step = Matrix(r, r);
    c.last.assign(r, 0.0);
    for (std::size_t j = 0; j < r; ++j) {
        c.last[j] = c.tau[r - 1] * c.lambda[j];
        for (std::size_t i = 0; i < r; ++i) c.step(i, j) = c.tau[i] * c.lambda[j];
    }
    const Matrix ones(r, r, 1.0), ek = scaled_rows(c.last, c.k);
    c.s1 = c.q * transposed(c.k) + ones;
    c.p1 = masked(c.step % c.s1);
    Matrix z;
    if (!mlp) {
        c.loss = loss_gradient(c.k * state.weight1 + state.bias1, v - c.k, gamma, beta);
        const Matrix& g = c.loss.gradient;
        z = c.q * state.weight1 + state.bias1 - c.p1 * g;
        state.weight1 = state.weight1 - transposed(ek) * g;
        state.bias1 = state.bias1 - column_sums(scaled_rows(c.last, g));
    } else {
        c.z1 = c.k * state.weight1 + state.bias1;
        c.x2 = map(c.z1, gelu);
        c.loss = loss_gradient(c.x2 * state.weight2 + state.bias2, v - c.k, gamma, beta);
        const Matrix& g2 = c.loss.gradient;
        c.j = g2 * transposed(state.weight2);
        c.g1 = c.j % map(c.z1, gelu_derivative);
        c.read1 = c.q * state.weight1 + state.bias1 - c.p1 * c.g1;
        c.read2 = map(c.read1, gelu);
        c.s2 = c.read2 * transposed(c.x2) + ones;
        c.p2 = masked(c.step % c.s2);
        z = c.read2 * state.weight2 + state.bias2 - c.p2 * g2;
        state.weight1 = state.weight1 - transposed(ek) * c.g1;
        state.bias1 = state.bias1 - column_sums(scaled_rows(c.last, c.g1));
        state.weight2 = state.weight2 - transposed(scaled_rows(c.last, c.x2)) * g2;
        state.bias2 = state.bias2 - column_sums(scaled_rows(c.last, g2));
    }
    c.out = normalise(z);
    return c.q + (c.out.normal % gamma + beta);
}

struct Gradients {
    Matrix q, k, v, tau, lambda, gamma, beta;  // tau, lambda: one row
};

// Σ over features of x⊙r plus g·dc', for each token: minus de.
inline std::vector<double> last_terms(const Matrix& x, const Matrix& r, const Matrix& g, const Matrix& dbias) {
    std::vector<double> sums(x.rows, 0.0);
    for (std::size_t t = 0; t < x.rows; ++t) {
        for (std::size_t i = 0; i < x.columns; ++i) sums[t] += x(t, i) * r(t, i);
        for (std::size_t o = 0; o < g.columns; ++o) sums[t] += g(t, o) * dbias(0, o);
    }
    return sums;
}

// `d` holds the gradient of the state after the mini-batch and becomes that of the state before it.
inline Gradients backward(const MiniBatch& c, State& d, const Matrix& dy, const Matrix& gamma, bool mlp) {
    const std::size_t r = c.q.rows;
    const State& s = c.state;
    const State after = d;
    const Matrix &x = c.out.normal, u = dy % gamma;
    const Matrix dz = divided(u - row_means(u) - x % row_means(u % x), c.out.deviation);
    Gradients out;
    out.gamma = column_sums(dy % x);
    out.beta = column_sums(dy);
    const Matrix ek = scaled_rows(c.last, c.k);
    Matrix last_column(r, 1);
    for (std::size_t t = 0; t < r; ++t) last_column(t, 0) = c.last[t];
    const Matrix &g = c.loss.gradient, &first_g = mlp ? c.g1 : c.loss.gradient;
    Matrix dread = dz, dstep(r, r), dg, dx2;  // dread: of Z̄ of the first layer; dg: of G of the last
    std::vector<double> dlast(r, 0.0);
    if (mlp) {
        Matrix dread2 = dz * transposed(s.weight2);
        d.weight2 = d.weight2 + transposed(c.read2) * dz;
        d.bias2 = d.bias2 + column_sums(dz);
        const Matrix dp = -1.0 * masked(dz * transposed(g)), ds = dp % c.step;
        dstep = dp % c.s2;
        dread2 = dread2 + ds * c.x2;
        dx2 = transposed(ds) * c.read2;
        dg = -1.0 * (transposed(c.p2) * dz) - scaled_rows(c.last, c.x2) * after.weight2 - last_column * after.bias2;
        const Matrix r2 = g * transposed(after.weight2);
        dx2 = dx2 - scaled_rows(c.last, r2);
        const std::vector<double> terms = last_terms(c.x2, r2, g, after.bias2);
        for (std::size_t t = 0; t < r; ++t) dlast[t] -= terms[t];
        dread = dread2 % map(c.read1, gelu_derivative);
    }
    out.q = dy + dread * transposed(s.weight1);
    d.weight1 = d.weight1 + transposed(c.q) * dread;
    d.bias1 = d.bias1 + column_sums(dread);
    const Matrix dp = -1.0 * masked(dread * transposed(first_g)), ds = dp % c.step;
    dstep = dstep + dp % c.s1;
    out.q = out.q + ds * c.k;
    out.k = transposed(ds) * c.q;
    const Matrix dg1 = -1.0 * (transposed(c.p1) * dread) - ek * after.weight1 - last_column * after.bias1;
    const Matrix r1 = first_g * transposed(after.weight1);
    out.k = out.k - scaled_rows(c.last, r1);
    const std::vector<double> terms = last_terms(c.k, r1, first_g, after.bias1);
    for (std::size_t t = 0; t < r; ++t) dlast[t] -= terms[t];
    Matrix dz1;
    LossBackward loss;
    if (mlp) {
        const Matrix dj = dg1 % map(c.z1, gelu_derivative);
        dz1 = dg1 % c.j % map(c.z1, gelu_second_derivative);
        dg = dg + dj * s.weight2;
        d.weight2 = d.weight2 + transposed(dj) * g;
        loss = loss_backward(dg, c.loss, gamma);
        dx2 = dx2 + loss.dz * transposed(s.weight2);
        d.weight2 = d.weight2 + transposed(c.x2) * loss.dz;
        d.bias2 = d.bias2 + column_sums(loss.dz);
        dz1 = dz1 + dx2 % map(c.z1, gelu_derivative);
    } else {
        loss = loss_backward(dg1, c.loss, gamma);
        dz1 = loss.dz;
    }
    out.k = out.k + dz1 * transposed(s.weight1) - loss.dtarget;
    d.weight1 = d.weight1 + transposed(c.k) * dz1;
    d.bias1 = d.bias1 + column_sums(dz1);
    out.v = loss.dtarget;
    out.gamma = out.gamma + loss.dgamma;
    out.beta = out.beta + loss.dbeta;
    out.tau = Matrix(1, r);
    out.lambda = Matrix(1, r);
    for (std::size_t j = 0; j < r; ++j) {
        dstep(r - 1, j) += dlast[j];
        for (std::size_t i = 0; i < r; ++i) {
            out.lambda(0, j) += c.tau[i] * dstep(i, j);
            out.tau(0, i) += c.lambda[j] * dstep(i, j);
        }
    }
    return out;
}

// Where a head's slices lie.
inline Matrix rows_of(const TttProblem& p, const std::vector<double>& x, std::size_t sequence, std::size_t head,
                      std::size_t start, std::size_t count) {
    Matrix a(count, p.width);
    for (std::size_t t = 0; t < count; ++t)
        for (std::size_t o = 0; o < p.width; ++o)
            a(t, o) = x[(sequence * p.length + start + t) * p.heads * p.width + head * p.width + o];
    return a;
}
inline void put_rows(const TttProblem& p, std::vector<double>& x, const Matrix& a, std::size_t sequence,
                     std::size_t head, std::size_t start) {
    for (std::size_t t = 0; t < a.rows; ++t)
        for (std::size_t o = 0; o < p.width; ++o)
            x[(sequence * p.length + start + t) * p.heads * p.width + head * p.width + o] = a(t, o);
}
inline Matrix part_of(const std::vector<double>& x, std::size_t head, std::size_t rows, std::size_t columns) {
    Matrix a(rows, columns);
    for (std::size_t i = 0; i < a.data.size(); ++i) a.data[i] = x[head * rows * columns + i];
    return a;
}
inline void add_part(std::vector<double>& x, const Matrix& a, std::size_t head) {
    for (std::size_t i = 0; i < a.data.size(); ++i) x[head * a.data.size() + i] += a.data[i];
}
inline State learned(const TttProblem& p, std::size_t head) {
    State s{part_of(p.weight1, head, p.width, p.hidden()), part_of(p.bias1, head, 1, p.hidden()), {}, {}};
    if (p.mlp) {
        s.weight2 = part_of(p.weight2, head, p.hidden(), p.width);
        s.bias2 = part_of(p.bias2, head, 1, p.width);
    }
    return s;
}
inline State carried(const TttProblem& p, const TttModels& models, std::size_t sequence, std::size_t head) {
    const std::size_t pair = sequence * p.heads + head;
    State s{part_of(models.weight1, pair, p.width, p.hidden()), part_of(models.bias1, pair, 1, p.hidden()), {}, {}};
    if (p.mlp) {
        s.weight2 = part_of(models.weight2, pair, p.hidden(), p.width);
        s.bias2 = part_of(models.bias2, pair, 1, p.width);
    }
    return s;
}

// Tokens of a sequence that are scanned on their own.
struct Piece {
    std::size_t begin, end;
    bool carried;  // from p.initial
};
inline std::vector<Piece> pieces_of(const TttProblem& p, std::size_t sequence) {
    if (p.joined()) return {{0, p.length, !p.initial.empty()}};
    std::vector<Piece> pieces;
    for (std::size_t t = 0; t < p.length; ++t) {
        const std::size_t position = p.first_position + t;
        const bool begins = p.starts[sequence * p.positions + position] == static_cast<double>(position);
        if (t == 0 || begins) pieces.push_back({t, t, !begins && !p.initial.empty()});
        pieces.back().end = t + 1;
    }
    return pieces;
}
inline State initial(const TttProblem& p, const Piece& piece, std::size_t sequence, std::size_t head) {
    return piece.carried ? carried(p, p.initial, sequence, head) : learned(p, head);
}
inline TttModels zero_models(const TttProblem& p) {
    const std::size_t pairs = p.batch * p.heads, matrix = pairs * p.width * p.hidden();
    return {Values(matrix), Values(pairs * p.hidden()), Values(p.mlp ? matrix : 0),
            Values(p.mlp ? pairs * p.width : 0)};
}
inline void add_models(TttModels& models, const State& s, std::size_t index) {
    add_part(models.weight1, s.weight1, index);
    add_part(models.bias1, s.bias1, index);
    add_part(models.weight2, s.weight2, index);
    add_part(models.bias2, s.bias2, index);
}
inline State zeros_like(const State& s) {
    return {0.0 * s.weight1, 0.0 * s.bias1, 0.0 * s.weight2, 0.0 * s.bias2};
}

// Runs one head of a piece from `state`, which becomes the one behind its last token; y receives its rows.
inline std::vector<MiniBatch> scan(const TttProblem& p, const Piece& piece, std::size_t sequence, std::size_t head,
                                   State& state, std::vector<double>& y) {
    const Matrix gamma = part_of(p.norm_weight, head, 1, p.width), beta = part_of(p.norm_bias, head, 1, p.width);
    std::vector<MiniBatch> parts;
    for (std::size_t start = piece.begin; start < piece.end; start += p.mini_batch) {
        const std::size_t count = std::min(p.mini_batch, piece.end - start);
        MiniBatch c;
        c.q = rows_of(p, p.q, sequence, head, start, count);
        c.k = rows_of(p, p.k, sequence, head, start, count);
        c.tau.assign(p.token_scale.begin(), p.token_scale.begin() + static_cast<std::ptrdiff_t>(count));
        for (std::size_t t = 0; t < count; ++t)
            c.lambda.push_back(p.step_size[(sequence * p.length + start + t) * p.heads + head]);
        const Matrix v = rows_of(p, p.v, sequence, head, start, count);
        put_rows(p, y, forward(c, state, v, gamma, beta, p.mlp), sequence, head, start);
        parts.push_back(c);
    }
    return parts;
}

}  // namespace ttt

// Every array of a problem; without `initial` those of the learned model, with it those of `initial`, with documents
// those of both.
inline std::vector<Values*> arrays_of(TttProblem& p) {
    std::vector<Values*> all = {&p.q, &p.k, &p.v, &p.step_size, &p.token_scale, &p.norm_weight, &p.norm_bias};
    if (p.initial.empty() || !p.joined()) all.insert(all.end(), {&p.weight1, &p.bias1, &p.weight2, &p.bias2});
    if (!p.initial.empty())
        all.insert(all.end(), {&p.initial.weight1, &p.initial.bias1, &p.initial.weight2, &p.initial.bias2});
    return all;
}

// `final_state`, where given, becomes the models behind the last tokens.
inline std::vector<double> ttt_forward(const TttProblem& p, TttModels* final_state = nullptr) {
    std::vector<double> y(p.q.size());
    TttModels last = ttt::zero_models(p);
    for (std::size_t sequence = 0; sequence < p.batch; ++sequence)
        for (std::size_t head = 0; head < p.heads; ++head) {
            ttt::State state;
            for (const ttt::Piece& piece : ttt::pieces_of(p, sequence)) {
                state = ttt::initial(p, piece, sequence, head);
                ttt::scan(p, piece, sequence, head, state, y);
            }
            ttt::add_models(last, state, sequence * p.heads + head);
        }
    if (final_state) *final_state = last;
    return y;
}

// The gradients of Σ y⊙dy + Σ final⊙dfinal, in the places of the inputs. With `initial` and without documents those of
// the learned model are 0.
inline TttProblem ttt_backward(const TttProblem& p, const std::vector<double>& dy, const TttModels& dfinal = {}) {
    TttProblem d = p;
    for (Values* x : {&d.weight1, &d.bias1, &d.weight2, &d.bias2}) x->assign(x->size(), 0.0);
    for (Values* x : arrays_of(d)) x->assign(x->size(), 0.0);
    std::vector<double> y(p.q.size());
    for (std::size_t sequence = 0; sequence < p.batch; ++sequence)
        for (std::size_t head = 0; head < p.heads; ++head)
            for (const ttt::Piece& piece : ttt::pieces_of(p, sequence)) {
                ttt::State state = ttt::initial(p, piece, sequence, head);
                const std::vector<ttt::MiniBatch> parts = ttt::scan(p, piece, sequence, head, state, y);
                ttt::State carry = dfinal.empty() || piece.end < p.length ? ttt::zeros_like(state)
                                                                          : ttt::carried(p, dfinal, sequence, head);
                const ttt::Matrix gamma = ttt::part_of(p.norm_weight, head, 1, p.width);
                for (std::size_t n = parts.size(); n-- > 0;) {
                    const std::size_t start = piece.begin + n * p.mini_batch, count = parts[n].q.rows;
                    const ttt::Gradients g =
                        ttt::backward(parts[n], carry, ttt::rows_of(p, dy, sequence, head, start, count), gamma, p.mlp);
                    ttt::put_rows(p, d.q, g.q, sequence, head, start);
                    ttt::put_rows(p, d.k, g.k, sequence, head, start);
                    ttt::put_rows(p, d.v, g.v, sequence, head, start);
                    for (std::size_t t = 0; t < count; ++t) {
                        d.step_size[(sequence * p.length + start + t) * p.heads + head] = g.lambda(0, t);
                        d.token_scale[t] += g.tau(0, t);
                    }
                    ttt::add_part(d.norm_weight, g.gamma, head);
                    ttt::add_part(d.norm_bias, g.beta, head);
                }
                if (piece.carried) {
                    ttt::add_models(d.initial, carry, sequence * p.heads + head);
                    continue;
                }
                ttt::add_part(d.weight1, carry.weight1, head);
                ttt::add_part(d.bias1, carry.bias1, head);
                ttt::add_part(d.weight2, carry.weight2, head);
                ttt::add_part(d.bias2, carry.bias2, head);
            }
    return d;
}

// The same outputs one token at a time: gradients at the mini-batch's start, W_i = W - τ_i Σ_{j≤i} λ_j ∇_j.
inline std::vector<double> ttt_decode(const TttProblem& p) {
    using namespace ttt;
    std::vector<double> y(p.q.size());
    for (std::size_t sequence = 0; sequence < p.batch; ++sequence)
        for (std::size_t head = 0; head < p.heads; ++head) {
            const Matrix gamma = part_of(p.norm_weight, head, 1, p.width);
            const Matrix beta = part_of(p.norm_bias, head, 1, p.width);
            State state = learned(p, head), sums = zeros_like(state), now = state;
            for (std::size_t t = 0; t < p.length; ++t) {
                const std::size_t i = t % p.mini_batch;
                if (i == 0) {
                    state = now;
                    sums = zeros_like(state);
                }
                const Matrix q = rows_of(p, p.q, sequence, head, t, 1);
                const Matrix k = rows_of(p, p.k, sequence, head, t, 1);
                const Matrix v = rows_of(p, p.v, sequence, head, t, 1);
                const double lambda = p.step_size[(sequence * p.length + t) * p.heads + head], tau = p.token_scale[i];
                const Matrix z1 = k * state.weight1 + state.bias1, x2 = map(z1, gelu);
                const Matrix g =
                    loss_gradient(p.mlp ? x2 * state.weight2 + state.bias2 : z1, v - k, gamma, beta).gradient;
                const Matrix g1 = p.mlp ? (g * transposed(state.weight2)) % map(z1, gelu_derivative) : g;
                sums.weight1 = sums.weight1 + lambda * (transposed(k) * g1);
                sums.bias1 = sums.bias1 + lambda * g1;
                now.weight1 = state.weight1 - tau * sums.weight1;
                now.bias1 = state.bias1 - tau * sums.bias1;
                Matrix z = q * now.weight1 + now.bias1;
                if (p.mlp) {
                    sums.weight2 = sums.weight2 + lambda * (transposed(x2) * g);
                    sums.bias2 = sums.bias2 + lambda * g;
                    now.weight2 = state.weight2 - tau * sums.weight2;
                    now.bias2 = state.bias2 - tau * sums.bias2;
                    z = map(z, gelu) * now.weight2 + now.bias2;
                }
                put_rows(p, y, q + (normalise(z).normal % gamma + beta), sequence, head, t);
            }
        }
    return y;
}

}  // namespace lockstep::reference
