// One term of the performance model normal form: a constant and a product of a power and a logarithm of the ranks,
// chosen by leaving out points.
#include <cmath>

#include "analysis/metrics/law.hpp"
#include "base/least_squares.hpp"

namespace lockstep::analysis {
namespace {

struct Exponents {
    double power = 0, logarithm = 0;
};

// The simplest first: of equally good ones the first is taken. Both zero is the constant.
const std::vector<Exponents>& hypotheses() {
    static const std::vector<Exponents> all = [] {
        std::vector<Exponents> list = {{0, 0}};
        for (const double logarithm : {0.0, 1.0, 2.0})
            for (const double power :
                 {-1.0,    -1.0 / 2, 0.0,     1.0 / 4, 1.0 / 3, 1.0 / 2, 2.0 / 3, 3.0 / 4, 1.0,      5.0 / 4, 4.0 / 3,
                  3.0 / 2, 5.0 / 3,  7.0 / 4, 2.0,     9.0 / 4, 7.0 / 3, 5.0 / 2, 8.0 / 3, 11.0 / 4, 3.0})
                if (power != 0 || logarithm != 0) list.push_back({power, logarithm});
        return list;
    }();
    return all;
}

double term(const Exponents& exponents, double p) {
    return std::pow(p, exponents.power) * std::pow(std::log2(p), exponents.logarithm);
}

// T = c₀ + c₁·g, neither negative, with the least relative errors; the constant alone without the term.
LinearFit fit_of(const std::vector<double>& terms, const FitData& data, bool with_term) {
    std::vector<std::vector<double>> columns = {std::vector<double>(terms.size(), 1.0)};
    if (with_term) columns.push_back(terms);
    return relative_fit(std::move(columns), data.values);
}

class Terms {
  public:
    explicit Terms(const std::vector<double>& ranks) {
        for (const Exponents& exponents : hypotheses()) {
            std::vector<double> values;
            for (const double p : ranks) values.push_back(term(exponents, p));
            values_.push_back(std::move(values));
        }
    }
    const std::vector<double>& of(std::size_t hypothesis) const { return values_[hypothesis]; }

  private:
    std::vector<std::vector<double>> values_;
};

// The sum of squared relative errors at each number of ranks, of the fit to all others; NaN where there is no fit.
double left_out_error(const std::vector<double>& terms, const FitData& data, bool with_term) {
    LinearFit fit = fit_of(terms, data, with_term);
    const std::vector<double> weights = fit.weights;
    double error = 0;
    for (std::size_t first = 0, end = 0; first < terms.size(); first = end) {
        while (end < terms.size() && data.ranks[end] == data.ranks[first]) fit.weights[end++] = 0;
        const std::vector<double> fitted = least_squares(fit);
        if (fitted.empty()) return unknown;
        for (std::size_t i = first; i < end; ++i) {
            fit.weights[i] = weights[i];
            const double relative = (fitted[0] + (with_term ? fitted[1] * terms[i] : 0)) / data.values[i] - 1;
            error += relative * relative;
        }
    }
    return error;
}

std::vector<double> coefficients_of(const std::vector<double>& terms, const FitData& data, const Exponents& exponents) {
    const bool with_term = exponents.power != 0 || exponents.logarithm != 0;
    const std::vector<double> fitted = least_squares(fit_of(terms, data, with_term));
    if (fitted.empty()) return {};
    return {fitted[0], with_term ? fitted[1] : 0, exponents.power, exponents.logarithm};
}

std::vector<double> select(const Terms& terms, const FitData& data) {
    std::size_t best = 0;
    double least = left_out_error(terms.of(0), data, false);
    for (std::size_t h = 1; h < hypotheses().size(); ++h) {
        const double error = left_out_error(terms.of(h), data, true);
        // Differences of roundings choose nothing; a NaN, where a hypothesis cannot be fitted, neither.
        if (!(error < least * (1 - 1e-6) - 1e-20)) continue;
        best = h;
        least = error;
    }
    return coefficients_of(terms.of(best), data, hypotheses()[best]);
}

}  // namespace

Fit fit_extra_p(const std::vector<FitPoint>& points, const std::vector<double>& predict_at) {
    Fit fit{"extra_p", "Extra-P model", "T(p) = c₀ + c₁·p^i·log₂^j(p)",
            "Calotoiu et al. 2013, \"Using automated performance modeling to find scalability bugs in complex "
            "codes\", equation 1 with one term"};
    Law law;
    law.name = "An Extra-P model";
    law.fewest = 5;
    law.fewest_to_predict = 5;
    law.parameters = {{"constant", "c₀, s", unknown, {}},
                      {"coefficient", "c₁, s", unknown, {}},
                      {"exponent", "exponent i of p", unknown, {}},
                      {"logarithm_exponent", "exponent j of log₂ p", unknown, {}}};
    const Terms terms(fit_data(usable_points(points)).ranks);
    law.solve = [&terms](const FitData& data) { return select(terms, data); };
    law.evaluate = [](const std::vector<double>& parameters, double p) {
        return parameters[0] + parameters[1] * term({parameters[2], parameters[3]}, p);
    };
    // Coefficients of different exponents cannot be compared: theirs are of the chosen exponents, and how far the
    // choice wavers stands with the exponents.
    law.resampled_parameters = [](const FitData& data, const std::vector<double>& fitted,
                                  const std::vector<double>& solved) {
        const Exponents chosen = {fitted[2], fitted[3]};
        std::vector<double> values;
        for (const double p : data.ranks) values.push_back(term(chosen, p));
        std::vector<double> own = coefficients_of(values, data, chosen);
        if (own.empty()) own.assign(solved.size(), unknown);
        own[2] = solved[2];
        own[3] = solved[3];
        return own;
    };
    fit_law(fit, law, points, predict_at);
    if (!fit.refusal.empty()) return fit;
    if (fit.parameters[1].value == 0) fit.remarks.emplace_back("No term fits the points better than a constant.");
    return fit;
}

}  // namespace lockstep::analysis
