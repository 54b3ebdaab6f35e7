// Messages and reductions, issued as training issues them.
#include "calibrate/calibration.hpp"
#include "device/memory.hpp"

namespace lockstep::calibrate {

using cluster::Reduce;

void calibrate_messages(const CalibrationRank& rank, const CalibrationOptions& options, config::Rates& rates) {
    constexpr int buckets = 2;
    const std::int64_t bucket = options.quick ? 1 << 14 : std::int64_t{12} << 20;      // elements
    const std::int64_t activations = options.quick ? 1 << 12 : std::int64_t{1} << 19;  // likewise
    const int ranks = rank.control.size(), own = rank.control.rank();
    const Meter meter(rank, options.quick ? 0.002 : 0.15), short_meter(rank, options.quick ? 0.002 : 0.05);
    Arena memory(rank.backend.device(), static_cast<std::size_t>(buckets * bucket) * sizeof(float), "a calibration");
    const Tensor all = memory.allocate(Type::fp32, {buckets * bucket});
    rank.backend.fill(all, 0);
    rank.backend.synchronize();
    const auto say = [&](const char* what) {
        if (options.say) options.say(what);
    };
    const double share = static_cast<double>(ranks - 1) / ranks;
    const auto bytes = [](Tensor tensor) { return static_cast<double>(tensor.bytes()); };

    say("messages between neighbours");
    // In pairs, one direction at a time, as stages of a pipeline mostly do.
    const bool even = own % 2 == 0;
    const int partner = even ? own + 1 : own - 1;
    const auto pass = [&](Tensor values, bool sends) {
        if (partner == ranks) return;
        if (sends)
            rank.neighbours.begin_send(values, partner, 0)->wait();
        else
            rank.neighbours.begin_receive(values, partner, 0)->wait();
    };
    // There and back: a sender alone may be done before its message has arrived.
    const auto there_and_back = [&](int) {
        pass(all.slice(0, 2), even);
        pass(all.slice(0, 2), !even);
    };
    rates.messages.latency_us = short_meter.seconds(there_and_back) / 2 * 1e6;
    const Tensor message = all.slice(0, activations);
    const double message_seconds = short_meter.seconds([&](int) { pass(message, even); });
    rates.messages.gb_per_second = bytes(message) / message_seconds * 1e-9;

    say("all-reduces of activations");
    const double steps = 2 * share;  // of two ranks 1
    rates.messages.all_reduce_us =
        short_meter.seconds([&](int) { rank.tensors.all_reduce(all.slice(0, 2), Reduce::sum); }) / steps * 1e6;
    const auto of_activations = [&](Type type) {
        const Tensor values = Tensor(all.data(), type, {activations});
        const double seconds = short_meter.seconds([&](int) { rank.tensors.all_reduce(values, Reduce::sum); });
        return 2 * share * bytes(values) / seconds * 1e-9;
    };
    if (options.fp32) rates.fp32.all_reduce_gb_per_second = of_activations(Type::fp32);
    if (options.bf16) rates.bf16.all_reduce_gb_per_second = of_activations(Type::bf16);

    say("reductions of gradients");
    std::vector<std::int64_t> cuts;
    for (int part = 0; part <= ranks; ++part) cuts.push_back(bucket * part / ranks);
    const auto in_buckets = [&](const std::function<void(Tensor)>& begin) {
        return meter.seconds([&](int) {
            for (int i = 0; i < buckets; ++i) begin(all.slice(i * bucket, bucket));
            rank.tensors.finish_collectives();
        });
    };
    const double reduced = in_buckets([&](Tensor part) { rank.tensors.begin_all_reduce(part, Reduce::sum); });
    const double scattered = in_buckets([&](Tensor part) { rank.tensors.begin_reduce_scatter(part, cuts); });
    const double gathered = in_buckets([&](Tensor part) { rank.tensors.begin_all_gather(part, cuts); });
    rates.messages.bucket_gb_per_second = 2 * share * bytes(all) / reduced * 1e-9;
    rates.messages.scatter_gb_per_second = share * bytes(all) / scattered * 1e-9;
    rates.messages.gather_gb_per_second = share * bytes(all) / gathered * 1e-9;
}

}  // namespace lockstep::calibrate
