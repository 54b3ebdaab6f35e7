#include "train/replica_check.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/hash.hpp"
#include "cluster/agree.hpp"

namespace lockstep::train {
namespace {

constexpr std::int64_t elements_at_a_time = std::int64_t{1} << 24;  // downloaded from a GPU

std::uint64_t checksum(const TrainingState& state, const layout::Devices& devices) {
    Hasher hasher;
    std::vector<char> piece;
    const auto add_from_host = [&](const Tensor& values) {
        if (!values.empty()) hasher.add(values.data(), values.bytes());
    };
    const bool offloaded = state.parameters->offloaded();
    const Tensor optimizer_state = state.divided ? Tensor() : state.optimizer->state().all();
    if (offloaded && !state.divided) {
        add_from_host(optimizer_state);
        for (std::size_t number = 0; number < state.parameters->owned().size(); ++number)
            add_from_host(state.parameters->owned_value(number));
    }
    for (const Tensor& values : {state.parameters->all_values(), state.parameters->all_working(),
                                 state.parameters->all_exact(), offloaded ? Tensor() : optimizer_state}) {
        if (values.empty()) continue;
        if (!devices.on_gpu()) {
            add_from_host(values);
            continue;
        }
        for (std::int64_t first = 0; first < values.count(); first += elements_at_a_time) {
            const Tensor part = values.slice(first, std::min(elements_at_a_time, values.count() - first));
            piece.resize(part.bytes());
            devices.backend->download(piece.data(), part);
            hasher.add(piece.data(), piece.size());
        }
    }
    return hasher.digest();
}

}  // namespace

void check_replicas(const Launch& launch, const TrainingState& state, std::int64_t step) {
    if (launch.grid.replicas() == 1) return;
    const std::uint64_t own = checksum(state, launch.devices);
    const std::vector<char> all = launch.control->gather(&own, sizeof own, 0);
    cluster::on_root(*launch.control, [&] {
        std::vector<std::uint64_t> sums(static_cast<std::size_t>(launch.session.size()));
        std::memcpy(sums.data(), all.data(), all.size());
        for (int rank = 0; rank < launch.session.size(); ++rank) {
            const cluster::GridPlace place = cluster::grid_place(rank, launch.grid);
            const int like = cluster::grid_rank({place.tensor, 0, 0, place.pipeline}, launch.grid);
            const std::uint64_t found = sums[static_cast<std::size_t>(rank)],
                                there = sums[static_cast<std::size_t>(like)];
            if (found != there)
                throw fault_error(
                    "after step {} the parameters or optimizer state of rank {} differ from those of rank {} (checksums {} and "
                    "{}), which points to faulty hardware or a bug; resume from an earlier checkpoint with --resume "
                    "FILE",
                    step, rank, like, hash_text(found), hash_text(there));
        }
    });
}

}  // namespace lockstep::train
