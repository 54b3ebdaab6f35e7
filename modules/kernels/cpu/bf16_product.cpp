#include "kernels/cpu/bf16_product.hpp"

#include <algorithm>

#include "device/parallel.hpp"

namespace lockstep::kernels::cpu {
namespace {

constexpr std::int64_t side = TileFunctions::side, pair = 2 * side;

std::int64_t divided_up(std::int64_t count, std::int64_t step) {
    return (count + step - 1) / step;
}
std::int64_t rounded_up(std::int64_t count, std::int64_t step) {
    return divided_up(count, step) * step;
}

// A product is computed in parts of at most these sizes. Packed operands and sums stay in caches; so do the panels of
// a thread's share in its own.
constexpr std::int64_t most_rows = 1024, most_columns = 2048, most_terms = 1024;

// Larger results are not expected to stay in a cache until they are used.
constexpr std::int64_t cached_bytes = std::int64_t{32} << 20;

// A thread's share of a part: square enough to use each packed panel often, small enough to give each thread some.
struct Share {
    std::int64_t rows = 256, columns = 256;
    std::int64_t count(std::int64_t of_rows, std::int64_t of_columns) const {
        return divided_up(of_rows, rows) * divided_up(of_columns, columns);
    }
};
Share share_of(std::int64_t rows, std::int64_t columns) {
    Share share;
    while (share.count(rows, columns) < 4 * threads() && share.rows > pair)
        (share.columns > share.rows ? share.columns : share.rows) /= 2;
    return share;
}

struct Part {
    Part(std::int64_t m, std::int64_t n, std::int64_t k)
        : rows(std::min(rounded_up(m, pair), most_rows)),
          columns(std::min(rounded_up(n, pair), most_columns)),
          terms(rounded_up(divided_up(k, divided_up(k, most_terms)), TileFunctions::depth)),
          sums(k > most_terms ? rows * columns : 0) {}
    std::int64_t left() const { return rows * terms / 2; }  // floats, for packed bf16
    std::int64_t right() const { return columns * terms / 2; }
    std::int64_t rows, columns, terms;  // whole pairs of panels; whole tiles
    std::int64_t sums;                  // that wait for more terms
};

class Multiplication {
  public:
    Multiplication(const TileFunctions& functions, const Bf16Product& product, float* scratch)
        : functions_(functions),
          product_(product),
          part_(product.m, product.n, product.k),
          left_(reinterpret_cast<bf16*>(scratch)),
          right_(reinterpret_cast<bf16*>(scratch + part_.left())),
          sums_(scratch + part_.left() + part_.right()) {
        const TileFunctions::Result& c = product.c;
        const std::int64_t row = c.stride * (c.c_is_bf16 ? 2 : 4);
        around_caches_ = !c.accumulate && product.m * row > cached_bytes && row % 64 == 0 &&
                         reinterpret_cast<std::uintptr_t>(c.c) % 64 == 0;
    }

    void run() {
        for (std::int64_t column = 0; column < product_.n; column += part_.columns)
            for (std::int64_t row = 0; row < product_.m; row += part_.rows)
                for (std::int64_t term = 0; term < product_.k; term += part_.terms) compute({row, column, term});
    }

  private:
    struct Place {
        std::int64_t row, column, term;
    };

    void compute(const Place& at) {
        const std::int64_t rows = std::min(part_.rows, product_.m - at.row),
                           columns = std::min(part_.columns, product_.n - at.column),
                           terms = std::min(part_.terms, product_.k - at.term);
        const std::int64_t tiles = divided_up(terms, TileFunctions::depth);
        pack(at, rows, columns, terms, tiles);

        const Share share = share_of(rows, columns);
        const std::int64_t down = divided_up(rows, share.rows);
        parallel_for(share.count(rows, columns), 1, [&](std::int64_t from, std::int64_t to, int) {
            for (std::int64_t item = from; item < to; ++item) {
                const std::int64_t row = item % down * share.rows, column = item / down * share.columns;
                const std::int64_t count = std::min(share.rows, rows - row),
                                   width = std::min(share.columns, columns - column);
                TileFunctions::Block block;
                block.left = left_ + row / side * tiles * TileFunctions::tile;
                block.right = right_ + column / side * tiles * TileFunctions::tile;
                block.row_panels = rounded_up(count, pair) / side;
                block.column_panels = rounded_up(width, pair) / side;
                block.tiles = tiles;
                block.sums_stride = part_.columns / side;
                block.sums = sums_ + (row * block.sums_stride + column) * side;
                block.first = at.term == 0;
                block.last = at.term + terms == product_.k;
                block.result = result(at.row + row, at.column + column, count, width);
                functions_.multiply(block);
            }
        });
    }

    // Panels that the part before had, too, stay as they are.
    void pack(const Place& at, std::int64_t rows, std::int64_t columns, std::int64_t terms, std::int64_t tiles) {
        const bool new_left = at.row != packed_.row || at.term != packed_.term,
                   new_right = at.column != packed_.column || at.term != packed_.term;
        packed_ = at;
        const std::int64_t left = new_left ? divided_up(rows, pair) : 0,
                           right = new_right ? divided_up(columns, pair) : 0;
        parallel_for(left + right, 1, [&](std::int64_t from, std::int64_t to, int) {
            for (std::int64_t item = from; item < to; ++item) {
                const bool is_left = item < left;
                const std::int64_t first = (is_left ? item : item - left) * pair;
                if (is_left)
                    functions_.pack_left(left_ + first / side * tiles * TileFunctions::tile,
                                         panels(product_.a, product_.stride_a, product_.transpose_a, at.row + first,
                                                std::min(pair, rows - first), at.term, terms));
                else
                    functions_.pack_right(right_ + first / side * tiles * TileFunctions::tile,
                                          panels(product_.b, product_.stride_b, !product_.transpose_b,
                                                 at.column + first, std::min(pair, columns - first), at.term, terms));
            }
        });
    }

    static TileFunctions::Panels panels(const bf16* matrix, std::int64_t stride, bool rows_are_terms,
                                        std::int64_t first, std::int64_t count, std::int64_t term, std::int64_t terms) {
        return {matrix + (rows_are_terms ? term * stride + first : first * stride + term),
                stride,
                rows_are_terms,
                count,
                terms,
                divided_up(terms, TileFunctions::depth)};
    }

    TileFunctions::Result result(std::int64_t row, std::int64_t column, std::int64_t rows, std::int64_t columns) const {
        TileFunctions::Result result = product_.c;
        result.c = static_cast<char*>(result.c) + (row * result.stride + column) * (result.c_is_bf16 ? 2 : 4);
        if (result.bias) result.bias = static_cast<const char*>(result.bias) + column * (result.bias_is_bf16 ? 2 : 4);
        result.rows = rows;
        result.columns = columns;
        result.around_caches = around_caches_;
        return result;
    }

    const TileFunctions& functions_;
    const Bf16Product& product_;
    Part part_;
    bf16 *left_, *right_;
    float* sums_;
    bool around_caches_;
    Place packed_{-1, -1, -1};  // where the packed operands are from
};

}  // namespace

std::int64_t bf16_product_floats(std::int64_t m, std::int64_t n, std::int64_t k) {
    const Part part(m, n, k);
    return part.left() + part.right() + part.sums;
}

void bf16_multiply(const TileFunctions& functions, const Bf16Product& product, float* scratch) {
    Multiplication(functions, product, scratch).run();
}

}  // namespace lockstep::kernels::cpu
