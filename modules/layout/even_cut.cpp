#include "layout/even_cut.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace lockstep::layout {

std::vector<std::int64_t> cut_evenly(const std::vector<double>& items, std::int64_t pieces, double first, double last) {
    struct Rest {
        double most = 0, squares = 0;
    };
    constexpr double equal = 1e-9;  // relative; sums in another order differ
    const auto clearly_less = [](double a, double b) { return a < b * (1 - equal); };
    const auto count = static_cast<std::int64_t>(items.size()), spare = count - pieces;
    LOCKSTEP_ASSERT(pieces >= 1 && spare >= 0);
    std::vector<double> before = {0};
    for (const double item : items) before.push_back(before.back() + item);
    // What a greedy cut reaches, so that no best piece of several items has more.
    const double largest =
        std::max({*std::max_element(items.begin(), items.end()), first + items.front(), last + items.back()});
    const double bound = (before.back() + first + last) / static_cast<double>(pieces) + largest;
    // Of the items from `piece` + i on, cut into the pieces from `piece` on: the best cut, and how many the first
    // takes.
    const auto starts = static_cast<std::size_t>(spare + 1);
    std::vector<Rest> behind(starts);
    std::vector<std::vector<std::int64_t>> taken(static_cast<std::size_t>(pieces), std::vector<std::int64_t>(starts));
    for (std::int64_t piece = pieces - 1; piece >= 0; --piece) {
        std::vector<Rest> here(starts);
        const bool is_last = piece + 1 == pieces;
        for (std::int64_t i = 0; i <= spare; ++i) {
            const auto at = static_cast<std::size_t>(i);
            bool any = false;
            for (std::int64_t extra = is_last ? spare - i : 0; i + extra <= spare; ++extra) {
                const std::int64_t begin = piece + i, end = begin + 1 + extra;
                const double work = before[static_cast<std::size_t>(end)] - before[static_cast<std::size_t>(begin)] +
                                    (piece == 0 ? first : 0) + (is_last ? last : 0);
                if (any && work > bound * (1 + equal)) break;
                const Rest& rest = is_last ? Rest{} : behind[static_cast<std::size_t>(i + extra)];
                const Rest whole{std::max(work, rest.most), work * work + rest.squares};
                const Rest& best = here[at];
                const bool worse = clearly_less(best.most, whole.most) ||
                                   (!clearly_less(whole.most, best.most) && clearly_less(best.squares, whole.squares));
                if (any && worse) continue;
                any = true;
                here[at] = whole;
                taken[static_cast<std::size_t>(piece)][at] = 1 + extra;
            }
        }
        behind = std::move(here);
    }
    std::vector<std::int64_t> counts;
    std::size_t at = 0;
    for (const auto& of_piece : taken) {
        counts.push_back(of_piece[at]);
        at += static_cast<std::size_t>(counts.back() - 1);
    }
    return counts;
}

}  // namespace lockstep::layout
