#include "model/rotary_table.hpp"

#include <cmath>
#include <numbers>
#include <vector>

namespace lockstep::model {
namespace {

// Llama 3's scaling of long wavelengths (the published configurations of 3.1 and 3.2).
double llama3_frequency(double frequency, const config::ModelDescription& model) {
    const double factor = model.rope_factor, low = model.rope_low, high = model.rope_high;
    const auto old_context = static_cast<double>(model.rope_original_context);
    const double wavelength = 2 * std::numbers::pi / frequency;
    if (wavelength < old_context / high) return frequency;
    if (wavelength > old_context / low) return frequency / factor;
    const double smooth = (old_context / wavelength - low) / (high - low);
    return (1 - smooth) * frequency / factor + smooth * frequency;
}

}  // namespace

RotaryTable::RotaryTable(kernels::Backend& backend, const config::ModelDescription& model, std::int64_t head_width,
                         std::int64_t period) {
    const std::int64_t half = head_width / 2;
    memory = planned(backend.device(), "rotary positions", [&](Arena& arena) {
        cosine = arena.allocate(Type::fp32, {period, half});
        sine = arena.allocate(Type::fp32, {period, half});
    });
    if (backend.device().imaginary) return;
    std::vector<float> cosines(static_cast<std::size_t>(period * half)), sines(cosines.size());
    for (std::int64_t i = 0; i < half; ++i) {
        double frequency = std::pow(model.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_width));
        if (model.rope_scaling == config::RopeScaling::llama3) frequency = llama3_frequency(frequency, model);
        for (std::int64_t position = 0; position < period; ++position) {
            const double angle = static_cast<double>(position) * frequency;
            const auto place = static_cast<std::size_t>(position * half + i);
            cosines[place] = static_cast<float>(std::cos(angle));
            sines[place] = static_cast<float>(std::sin(angle));
        }
    }
    backend.upload(cosine, cosines.data());
    backend.upload(sine, sines.data());
}

namespace {

bool are_neighbours(const Tensor& left, const Tensor& right) {
    const std::size_t bytes = static_cast<std::size_t>(left.size(-1)) * type_bytes(left.type());
    return right.strided_data() == static_cast<char*>(left.strided_data()) + bytes && left.rows() == right.rows() &&
           left.stride() == right.stride() && left.stride() >= left.size(-1) + right.size(-1);
}

}  // namespace

void rotate(kernels::Backend& backend, const RotaryTable& table, Tensor q, Tensor k, std::int64_t length,
            std::int64_t position, kernels::RotaryPairs pairs, bool inverse) {
    const auto turn = [&](Tensor x) { backend.rotate(x, table.cosine, table.sine, length, position, pairs, inverse); };
    if (are_neighbours(q, k))
        return turn(Tensor(q.strided_data(), q.type(), {q.rows(), q.size(-1) + k.size(-1)}, q.stride()));
    turn(q);
    turn(k);
}

}  // namespace lockstep::model
