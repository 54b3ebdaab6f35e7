#include "analysis/report/tics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/output/values.hpp"
#include "analysis/report/plot.hpp"
#include "analysis/report/text.hpp"

namespace lockstep::analysis {
namespace {

constexpr double gap = 0.6 * font_size, line = 1.3 * font_size;  // pixels between labels, and from one line to the next
constexpr std::size_t most_tics = 9;

// Of a multiple of `step`.
std::string words_of(double value, double step) {
    if (value == 0) return "0";
    if (step >= 1 && std::abs(value) < 1e9) return whole_words(value);
    if (step >= 0.99e-4 && std::abs(value) < 1e9)
        return fmt::format("{:.{}f}", value, std::max(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9))));
    // As many digits as tell it from its neighbour; "2e-06" with a zero less.
    const int digits = static_cast<int>(std::ceil(std::log10(std::abs(value) / step) - 1e-9)) + 1;
    std::string words = fmt::format("{:.{}g}", value, std::max(digits, 4));
    const std::size_t exponent = words.find('e');
    if (exponent != std::string::npos) {
        std::size_t first = exponent + 2;
        while (first + 1 < words.size() && words[first] == '0') words.erase(first, 1);
        if (words[exponent + 1] == '+') words.erase(exponent + 1, 1);
    }
    return words;
}

double length(const AxisRange& scale, Side side) {
    if (scale.pixels > 0) return scale.pixels;
    return side == Side::below ? Plot().width - space_left - space_right : Plot().height - space_below - space_above;
}

bool fits(const AxisRange& scale, Side side, const std::vector<Tic>& tics) {
    if (tics.size() > most_tics) return false;
    for (std::size_t i = 1; i < tics.size(); ++i) {
        const double apart = position(scale, tics[i].at) - position(scale, tics[i - 1].at);
        const double needed =
            side == Side::left ? line : (width_in_pixels(tics[i].words) + width_in_pixels(tics[i - 1].words)) / 2 + gap;
        if (apart < needed) return false;
    }
    return true;
}

std::vector<Tic> multiples(const AxisRange& scale, double step) {
    std::vector<Tic> tics;
    const double slack = 1e-9 * (scale.high - scale.low);
    const double first = std::ceil((scale.low - slack) / step), last = std::floor((scale.high + slack) / step);
    if (last - first > 1000) return std::vector<Tic>(most_tics + 1);
    for (double i = first; i <= last; ++i) tics.push_back({i * step, words_of(i * step, step)});
    return tics;
}

std::vector<Tic> powers(const AxisRange& scale, double base, int every, const std::vector<double>& leading) {
    std::vector<Tic> tics;
    const int first = static_cast<int>(std::floor(std::log(scale.low) / std::log(base) / every)) * every;
    for (int power = first;; power += every) {
        const double at = std::pow(base, power);
        if (at > scale.high * (1 + 1e-9)) return tics;
        for (const double times : leading)
            if (times * at >= scale.low * (1 - 1e-9) && times * at <= scale.high * (1 + 1e-9))
                tics.push_back({times * at, words_of(times * at, at)});
    }
}

// A label at the end of the axis may reach as far into the margin as it is wide.
void drop_what_sticks_out(const AxisRange& scale, Side side, std::vector<Tic>& tics) {
    if (side == Side::left || tics.size() < 3) return;
    if (position(scale, tics.back().at) + width_in_pixels(tics.back().words) / 2 > scale.pixels + space_right)
        tics.pop_back();
}

std::vector<Tic> linear_tics(const AxisRange& scale, Side side) {
    const double span = scale.high - scale.low;
    double decade = std::pow(10, std::floor(std::log10(span)) - 2);
    for (int i = 0; i < 5; ++i, decade *= 10)
        for (const double factor : {1.0, 2.0, 5.0}) {
            const double step = decade * factor;
            if (scale.whole && step < 1) continue;
            std::vector<Tic> tics = multiples(scale, step);
            if (fits(scale, side, tics)) return tics;
        }
    return {};
}

bool is_round(double ranks) {
    const auto whole = static_cast<std::int64_t>(ranks);
    std::int64_t odd = whole;
    while (odd > 0 && odd % 2 == 0) odd /= 2;
    return whole < 100 || odd <= 3 || whole % 100 == 0;
}

}  // namespace

double width_in_pixels(const std::string& label) {
    double width = 0;  // of the widest of the usual fonts
    for (const char letter : label) width += (letter == ',' || letter == '.' ? 0.32 : 0.64) * font_size;
    return width;
}

double position(const AxisRange& scale, double value) {
    return scale.pixels * (scale.logarithmic ? std::log(value / scale.low) / std::log(scale.high / scale.low)
                                             : (value - scale.low) / (scale.high - scale.low));
}

std::vector<Tic> round_tics(const AxisRange& asked, Side side) {
    AxisRange scale = asked;
    scale.pixels = length(asked, side);
    std::vector<Tic> best;
    if (!scale.logarithmic) {
        best = linear_tics(scale, side);
    } else {
        std::vector<std::vector<Tic>> choices;
        if (scale.high < 10 * scale.low) choices.push_back(linear_tics(scale, side));
        choices.push_back(powers(scale, 10, 1, {1, 2, 5}));
        for (const int every : {1, 2, 3, 5, 10, 20, 50, 100}) choices.push_back(powers(scale, 10, every, {1}));
        for (const auto& choice : choices)
            if (choice.size() > best.size() && (best.size() < 2) && fits(scale, side, choice)) best = choice;
    }
    drop_what_sticks_out(scale, side, best);
    return best;
}

std::vector<Tic> rank_tics(const AxisRange& asked, const std::vector<double>& ranks) {
    AxisRange scale = asked;
    scale.pixels = length(asked, Side::below);
    std::vector<Tic> tics;
    for (const double rank : ranks) tics.push_back({rank, words_of(rank, 1)});
    const bool round = std::all_of(ranks.begin(), ranks.end(), is_round);
    if (!round || !fits(scale, Side::below, tics)) {
        tics = scale.logarithmic ? powers(scale, 2, 1, {1}) : std::vector<Tic>();
        for (int every = 2; !fits(scale, Side::below, tics); ++every) tics = powers(scale, 2, every, {1});
        if (tics.size() < 2) return round_tics(asked, Side::below);
    }
    drop_what_sticks_out(scale, Side::below, tics);
    return tics;
}

std::string tic_list(const std::vector<Tic>& tics) {
    std::string list;
    for (const Tic& tic : tics)
        list += fmt::format("{}{} {:.9g}", list.empty() ? "" : ", ", gnuplot_tic(tic.words), tic.at);
    return "(" + list + ")";
}

std::string axis(const AxisRange& scale, Side side) {
    const char which = side == Side::below ? 'x' : 'y';
    return fmt::format("{}set {}tics {}\nset {}range [{:.9g}:{:.9g}]\n",
                       scale.logarithmic ? fmt::format("set logscale {}\n", which) : "", which,
                       tic_list(round_tics(scale, side)), which, scale.low, scale.high);
}

std::string rank_axis(const std::vector<double>& ranks) {
    const AxisRange scale{ranks.front() / 1.1, ranks.back() * 1.1, true, true};
    return fmt::format("set logscale x 2\nset xtics {}\nset xrange [{:.9g}:{:.9g}]\n",
                       tic_list(rank_tics(scale, ranks)), scale.low, scale.high);
}

AxisRange around(const std::vector<double>& values, bool logarithmic) {
    double low = INFINITY, high = -INFINITY;
    for (const double value : values)
        if (std::isfinite(value) && (!logarithmic || value > 0)) {
            low = std::min(low, value);
            high = std::max(high, value);
        }
    if (low > high) return {logarithmic ? 1.0 : 0.0, logarithmic ? 10.0 : 1.0, logarithmic};
    if (logarithmic) return {low / 1.2, high * 1.2, true};
    const double room = high > low ? 0.05 * (high - low) : std::max(0.05 * std::abs(high), 1e-9);
    return {low - room, high + room, false};
}

}  // namespace lockstep::analysis
