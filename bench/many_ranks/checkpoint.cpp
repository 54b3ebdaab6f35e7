// Who holds which tensors, and which rank writes what: a checkpoint's exchange plan.
#include <cstdio>
#include <map>
#include <memory>
#include <unordered_set>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "checkpoint/holdings.hpp"
#include "checkpoint/snapshot.hpp"
#include "checkpoint/transfer.hpp"
#include "device/memory.hpp"
#include "kernels/counting_backend.hpp"
#include "layout/rank_share.hpp"
#include "many_ranks/parts.hpp"
#include "optim/registry.hpp"
#include "simulated_group.hpp"
#include "train/checkpoint_contents.hpp"

namespace lockstep::bench {
namespace {

// A rank's tensors as training makes them.
struct RankState {
    layout::Devices devices;
    train::TrainingState state;
};

// Gradient plans are the same for all replicas of a place in the model.
class RankStates {
  public:
    explicit RankStates(int ranks) : run_(description_of(ranks)), grid_(grid_of(ranks)) {}

    RankState make(int rank, std::unique_ptr<kernels::Backend> backend) {
        const cluster::GridPlace place = cluster::grid_place(rank, grid_);
        const model::Part part{place.tensor, grid_.tensor};
        Known& known = known_[{place.tensor, place.pipeline}];
        if (!known.layout) {
            const auto chunks = layout::share_of_model(run_, grid_, place.pipeline);
            known.layout =
                std::make_unique<model::ParameterLayout>(model::describe_parameters(run_.model, chunks), part);
            known.plan = layout::plan_gradients(run_, grid_, place, *known.layout, chunks);
        }
        RankState made;
        made.devices.backend = std::move(backend);
        made.state.parameters =
            std::make_unique<model::ParameterSet>(made.devices.backend->device(), *known.layout, true, Type::bf16,
                                                  layout::division_of(run_, grid_, known.plan, place.replica(grid_)));
        made.state.optimizer =
            optim::optimizer_of(run_.optimizer)
                .make({*made.devices.backend, *made.state.parameters, run_.optimizer, {}, {}, nullptr, nullptr});
        return made;
    }

  private:
    struct Known {
        std::unique_ptr<model::ParameterLayout> layout;
        layout::GradientPlan plan;
    };
    config::RunDescription run_;
    config::Grid grid_;
    std::map<std::pair<std::int64_t, std::int64_t>, Known> known_;
};

// What all ranks say of the tensors they hold: their messages in gather_distinct_texts().
struct Said {
    checkpoint::Layout layout;
    std::string hashes, texts;
};

Said ask_all(RankStates& states, int ranks) {
    Said said;
    std::map<std::string, Shape> tensors;
    for (int rank = 0; rank < tensor_ranks * stages; ++rank) {  // one replica names them all
        const int of_replica = cluster::grid_rank({rank % tensor_ranks, 0, 0, rank / tensor_ranks}, grid_of(ranks));
        const RankState made = states.make(of_replica, std::make_unique<kernels::CountingBackend>(DeviceKind::cpu));
        const auto& layout = made.state.parameters->layout();
        for (std::size_t i = 0; i < layout.size(); ++i) {
            const auto& parameter = layout.descriptions()[i];
            tensors[checkpoint::parameters_prefix + parameter.name] = parameter.shape;
        }
        for (const optim::StatePart& part : made.state.optimizer->state().parts())
            tensors["optimizer/" + part.path] = part.shape;
    }
    std::vector<checkpoint::TensorInfo> infos;
    for (const auto& [path, shape] : tensors) infos.push_back({path, shape});
    said.layout = checkpoint::make_part_header({}, infos, {ranks, "0000000000000000"}).layout;

    std::unordered_set<std::string> known;
    double last_line = seconds_now();
    for (int rank = 0; rank < ranks; ++rank) {
        const RankState made = states.make(rank, std::make_unique<kernels::CountingBackend>(DeviceKind::cpu));
        const auto own =
            checkpoint::holdings_to_texts(said.layout.places, train::checkpoint_entries(made.state, made.devices));
        said.hashes += cluster::hashes_of(own);
        for (const std::string& text : own)
            if (known.insert(text).second) cluster::add_text(said.texts, text);
        if (seconds_now() - last_line < 10) continue;
        last_line = seconds_now();
        std::fprintf(stderr, "asked %d of %d ranks\n", rank + 1, ranks);
    }
    return said;
}

// Learns who holds what and goes on with it; `use` returns the bytes that count.
template <class Use>
Cost with_holdings(const Said& said, RankStates& states, int rank, int ranks, Use&& use) {
    SimulatedGroup group(rank, ranks, {said.hashes, said.texts});
    const RankState made = states.make(rank, kernels::make_cpu_backend());
    const auto entries = train::checkpoint_entries(made.state, made.devices);
    const std::uint64_t before = process_memory().peak;
    const double start = seconds_now();
    const checkpoint::Holdings holdings = checkpoint::gather_holdings(said.layout.places, entries, group);
    const std::uint64_t received = use(holdings, entries, group);
    return {seconds_now() - start, static_cast<double>(received), static_cast<double>(group.calls()),
            static_cast<double>(process_memory().peak - before) / (1 << 20)};
}

// Without the blocks themselves, which do not grow with the ranks.
Cost exchange_plan(const Said& said, RankStates& states, int rank, int ranks) {
    return with_holdings(said, states, rank, ranks, [&](const auto& holdings, const auto& entries, auto& group) {
        const std::uint64_t received = group.bytes_received();
        checkpoint::Collector collector(said.layout, holdings.spreads, entries, group,
                                        checkpoint::elements_a_round(ranks));
        collector.check_cover();
        checkpoint::Snapshot blocks;
        if (collector.collect(blocks)) throw fault_error("the blocks were not collected");
        return received;
    });
}

// What this rank is sent where others read the file, each its share.
Cost resume(const Said& said, RankStates& states, int rank, int ranks) {
    return with_holdings(said, states, rank, ranks, [&](const auto& holdings, const auto& entries, auto& group) {
        checkpoint::Reading reading;
        reading.shares = checkpoint::shares_of_blocks(said.layout, ranks);
        reading.shares[static_cast<std::size_t>(rank)].clear();
        checkpoint::Distributor(reading, said.layout, holdings.spreads, entries, group,
                                checkpoint::elements_a_round(reading.readers()))
            .distribute();
        return group.bytes_received();
    });
}

// For both.
std::function<Cost()> asked(int ranks, Cost (*part)(const Said&, RankStates&, int rank, int ranks)) {
    static int asked_ranks = 0;
    static std::shared_ptr<RankStates> states;
    static std::shared_ptr<const Said> said;
    if (asked_ranks != ranks) {
        states = std::make_shared<RankStates>(ranks);
        said = std::make_shared<const Said>(ask_all(*states, ranks));
        asked_ranks = ranks;
    }
    return [=, states = states, said = said] { return part(*said, *states, ranks / 2, ranks); };
}

}  // namespace

std::function<Cost()> ask_for_exchange_plan(int ranks) {
    return asked(ranks, exchange_plan);
}

std::function<Cost()> ask_for_resume(int ranks) {
    return asked(ranks, resume);
}

}  // namespace lockstep::bench
