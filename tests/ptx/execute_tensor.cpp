#include <algorithm>
#include <cmath>

#include "ptx/memory_access.hpp"
#include "ptx/numbers.hpp"
#include "ptx/race.hpp"
#include "ptx/traffic.hpp"

namespace lockstep::ptx {

namespace {

struct Operands {
    float a[16][16], b[16][8], d[16][8];  // a: row, k; b: k, column
};

// Lanes 4 g to 4 g + 3 have eight elements that are beside each other in row g of a matrix by rows.
void put_rows(const std::uint32_t (&lanes)[lane_count], std::uint16_t* first, std::size_t stride) {
    for (std::size_t g = 0; g < 8; ++g) std::memcpy(first + g * stride, &lanes[4 * g], 16);
}

}  // namespace

template <float (*Single)(std::uint16_t)>
__attribute__((always_inline)) static inline void widen(const std::uint16_t (&a)[256], const std::uint16_t (&b)[128],
                                                        Operands& to) {
    for (int i = 0; i < 256; ++i) to.a[i / 16][i % 16] = Single(a[i]);
    float columns[128];
    for (int i = 0; i < 128; ++i) columns[i] = Single(b[i]);
    for (int k = 0; k < 16; ++k)
        for (int column = 0; column < 8; ++column) to.b[k][column] = columns[16 * column + k];
}

LOCKSTEP_PTX_VECTOR static void widen_half(const std::uint16_t (&a)[256], const std::uint16_t (&b)[128], Operands& to) {
    widen<single_of_half>(a, b, to);
}
LOCKSTEP_PTX_VECTOR static void widen_brain(const std::uint16_t (&a)[256], const std::uint16_t (&b)[128],
                                            Operands& to) {
    widen<single_of_brain>(a, b, to);
}

namespace {

using Register = std::uint32_t[lane_count];

void gather(Lanes& x, const Instruction& i, Operands& to) {
    const Slot* const slots = &x.launch->kernel.lists[i.list];
    const auto source = [&](int r) -> const Register& { return *x.in<Register>(slots[r]); };
    std::uint16_t a[256], b[128];
    for (int r = 0; r < 4; ++r) put_rows(source(4 + r), a + r % 2 * 128 + r / 2 * 8, 16);
    for (int r = 0; r < 2; ++r) put_rows(source(8 + r), b + r * 8, 16);
    i.type == Type::f16 ? widen_half(a, b, to) : widen_brain(a, b, to);
    for (int r = 0; r < 4; ++r) {
        const auto* const c = x.in<float>(slots[10 + r]);
        for (int lane = 0; lane < lane_count; ++lane) to.d[r / 2 * 8 + lane / 4][lane % 4 * 2 + r % 2] = c[lane];
    }
}

// All addends cut below the 24th bit under the largest one's first, and their sum cut to fp32: as measurements of
// tensor cores suggest (Fasi et al., Numerical behavior of NVIDIA tensor cores, 2021).
float truncated_sum(const float* a, const float (*b)[8], int column, float c) {
    float addends[17];
    float largest = std::fabs(c);
    bool finite = std::isfinite(c);
    addends[16] = c;
    for (int k = 0; k < 16; ++k) {
        addends[k] = a[k] * b[k][column];
        largest = std::max(largest, std::fabs(addends[k]));
        finite = finite && std::isfinite(addends[k]);
    }
    if (!finite) {
        float sum = c;
        for (int k = 0; k < 16; ++k) sum += addends[k];
        return sum;
    }
    if (largest == 0) return c;
    const int unit = std::ilogb(largest) - 24;
    double sum = 0;  // of at most 17 multiples of the unit, each below 2^25: exact
    for (const float addend : addends) sum += std::trunc(std::ldexp(static_cast<double>(addend), -unit));
    const double exact = std::ldexp(sum, unit);
    const auto nearest = static_cast<float>(exact);
    return std::fabs(static_cast<double>(nearest)) > std::fabs(exact) ? std::nextafter(nearest, 0.0f) : nearest;
}

}  // namespace

using Eight = float __attribute__((vector_size(32)));

// Four rows at once, so that their sums do not wait for each other; k ascends in each.
LOCKSTEP_PTX_VECTOR static void add_products(Operands& o) {
    constexpr int at_once = 4;
    for (int row = 0; row < 16; row += at_once) {
        Eight sums[at_once];
        std::memcpy(sums, o.d[row], sizeof sums);
        for (int k = 0; k < 16; ++k) {
            Eight b;
            std::memcpy(&b, o.b[k], sizeof b);
            for (int i = 0; i < at_once; ++i) sums[i] += o.a[row + i][k] * b;
        }
        std::memcpy(o.d[row], sums, sizeof sums);
    }
}

namespace {

// Bit g: the four lanes of quad g all are.
std::uint32_t whole_quads(std::uint32_t lanes) {
    std::uint32_t result = 0;
    for (int g = 0; g < 8; ++g) result |= static_cast<std::uint32_t>((lanes >> 4 * g & 15) == 15) << g;
    return result;
}

// The lanes whose result r has only written sources: its row of A, its column of B, its element of C.
std::uint32_t defined_results(const std::uint32_t* written, const Slot* slots, int r) {
    const int half = r / 2;
    const std::uint32_t rows = whole_quads(written[slots[4 + half]] & written[slots[6 + half]]);
    const std::uint32_t columns = whole_quads(written[slots[8]] & written[slots[9]]);
    std::uint32_t result = written[slots[10 + r]];
    for (int lane = 0; lane < lane_count; ++lane)
        if (!(rows >> lane / 4 & 1) || !(columns >> (lane % 4 * 2 + r % 2) & 1)) result &= ~(1u << lane);
    return result;
}

void multiply(Lanes& x, const Instruction& i) {
    Operands o;
    gather(x, i, o);
    if (x.launch->options.tensor_sum == Options::TensorSum::nearest) {
        add_products(o);
    } else {
        for (auto row = 0; row < 16; ++row)
            for (int column = 0; column < 8; ++column)
                o.d[row][column] = truncated_sum(o.a[row], o.b, column, o.d[row][column]);
    }
    const Slot* const slots = &x.launch->kernel.lists[i.list];
    std::uint32_t defined[4] = {all_lanes, all_lanes, all_lanes, all_lanes};
    if (x.defined != all_lanes)
        for (int r = 0; r < 4; ++r) defined[r] = defined_results(x.written, slots, r);
    for (int r = 0; r < 4; ++r) {
        float result[lane_count];
        for (int lane = 0; lane < lane_count; ++lane) result[lane] = o.d[r / 2 * 8 + lane / 4][lane % 4 * 2 + r % 2];
        x.defined = defined[r];
        x.put(slots[r], result);
    }
}

using Matrix = std::uint16_t[8][8];

// Each lane's register of a matrix: elements (g, 2t) and (g, 2t + 1), g = lane / 4, t = lane % 4, or its transpose's.
void spread(const Matrix& matrix, bool transposed, std::uint32_t (&result)[lane_count]) {
    if (!transposed) {
        std::memcpy(result, matrix, sizeof matrix);
        return;
    }
    for (int lane = 0; lane < lane_count; ++lane) {
        const int g = lane / 4, t = lane % 4 * 2;
        result[lane] = matrix[t][g] | static_cast<std::uint32_t>(matrix[t + 1][g]) << 16;
    }
}

// The lanes both of whose elements were written.
void set_defined(Lanes& x, const Matrix& written, bool transposed) {
    std::uint32_t pairs[lane_count];
    spread(written, transposed, pairs);
    x.defined = 0;
    for (int lane = 0; lane < lane_count; ++lane)
        x.defined |= static_cast<std::uint32_t>(pairs[lane] == 0x10001u) << lane;
    x.origin = x.pc;
}

void load_matrices(Lanes& x, const Instruction& i) {
    constexpr std::uint32_t row_bytes = 16;
    Addresses addresses;
    find_addresses(x, i.a, i.from_bytes, i.offset, addresses);
    const std::uint32_t rows = i.count * 8;
    const std::uint32_t mask = rows == 32 ? all_lanes : (1u << rows) - 1;  // lanes that name a row
    if (x.launch->counts != nullptr) count_shared_access(*x.launch->counts, addresses, mask, row_bytes);
    Reach reached;
    reach(x, addresses, mask, row_bytes, row_bytes, true, reached);
    note_reads(x, reached, addresses, row_bytes, true);
    const Slot* const slots = &x.launch->kernel.lists[i.list];
    for (std::uint32_t m = 0; m < i.count; ++m) {
        Matrix matrix = {}, written = {};
        bool whole = true;
        for (std::uint32_t row = 0; row < 8; ++row) {
            const std::uint32_t lane = m * 8 + row;
            std::uint32_t bytes = 0xffffu;
            if (reached.lanes >> lane & 1) {
                std::memcpy(matrix[row], x.block->shared.data() + addresses[lane], row_bytes);
                bytes = x.block->shared_region->written(addresses[lane]) & 0xffffu;
            }
            whole = whole && bytes == 0xffffu;
            if (bytes == 0xffffu)
                std::fill_n(written[row], 8, std::uint16_t{1});
            else
                for (int column = 0; column < 8; ++column) written[row][column] = (bytes >> 2 * column & 3) == 3;
        }
        std::uint32_t result[lane_count];
        spread(matrix, i.flag, result);
        if (!whole) set_defined(x, written, i.flag);
        x.put(slots[m], result);
        x.defined = all_lanes;
    }
}

void move_matrix(Lanes& x, const Instruction& i) {
    const auto* const a = x.in<std::uint32_t>(i.a);
    Matrix matrix, written;
    for (int lane = 0; lane < lane_count; ++lane) {
        const int g = lane / 4, t = lane % 4 * 2;
        matrix[g][t] = static_cast<std::uint16_t>(a[lane]);
        matrix[g][t + 1] = static_cast<std::uint16_t>(a[lane] >> 16);
        written[g][t] = written[g][t + 1] = x.written[i.a] >> lane & 1;
    }
    std::uint32_t result[lane_count];
    spread(matrix, true, result);
    if (x.defined != all_lanes) {
        const std::uint32_t from = x.origin;
        set_defined(x, written, true);
        x.origin = from;
    }
    x.put(i.d, result);
}

}  // namespace

void execute_tensor(Lanes& x, const Instruction& i) {
    switch (i.op) {
        case Op::mma:
            return multiply(x, i);
        case Op::load_matrix:
            return load_matrices(x, i);
        default:
            return move_matrix(x, i);
    }
}

}  // namespace lockstep::ptx
