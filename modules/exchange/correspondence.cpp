#include "exchange/correspondence.hpp"

#include <algorithm>
#include <vector>

namespace lockstep::exchange {
namespace {

// The rows of ours that elements [first, end) have in a column: an interval, since they are a run in row-major order.
struct Rows {
    std::int64_t first, end;
};
Rows rows_of_column(std::int64_t first, std::int64_t end, std::int64_t columns, std::int64_t column) {
    const auto rows_before = [&](std::int64_t element) { return (element - column + columns - 1) / columns; };
    return {std::max<std::int64_t>(rows_before(first), 0), std::max<std::int64_t>(rows_before(end), 0)};
}

}  // namespace

Shape Correspondence::their_shape() const {
    if (transposed) return {columns(), their_rows};
    Shape whole = shape;
    whole[0] = their_rows;
    return whole;
}

void read_ours(const Correspondence& names, const TensorFiles::Place& theirs, std::int64_t first, std::int64_t count,
               float* to) {
    const std::int64_t columns = names.columns();
    if (!names.transposed) return read_elements(theirs, names.first_row * columns + first, count, to);
    std::vector<float> run;
    for (std::int64_t column = 0; column < columns; ++column) {
        const auto [row, end] = rows_of_column(first, first + count, columns, column);
        if (row >= end) continue;
        run.resize(static_cast<std::size_t>(end - row));
        read_elements(theirs, column * names.their_rows + names.first_row + row, end - row, run.data());
        for (std::int64_t i = row; i < end; ++i)
            to[i * columns + column - first] = run[static_cast<std::size_t>(i - row)];
    }
}

void write_theirs(const Correspondence& names, std::int64_t first, std::int64_t count, const float* values,
                  const RunSink& sink) {
    const std::int64_t columns = names.columns();
    if (!names.transposed) return sink(names.first_row * columns + first, count, values);
    std::vector<float> run;
    for (std::int64_t column = 0; column < columns; ++column) {
        const auto [row, end] = rows_of_column(first, first + count, columns, column);
        if (row >= end) continue;
        run.resize(static_cast<std::size_t>(end - row));
        for (std::int64_t i = row; i < end; ++i)
            run[static_cast<std::size_t>(i - row)] = values[i * columns + column - first];
        sink(column * names.their_rows + names.first_row + row, end - row, run.data());
    }
}

}  // namespace lockstep::exchange
