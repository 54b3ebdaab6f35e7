#include "cluster/process_grid.hpp"

#include <algorithm>

namespace lockstep::cluster {

GridPlace grid_place(int rank, const config::Grid& grid) {
    LOCKSTEP_ASSERT(rank >= 0 && rank < grid.ranks());
    GridPlace place;
    std::int64_t left = rank;
    place.tensor = left % grid.tensor;
    left /= grid.tensor;
    place.context = left % grid.context;
    left /= grid.context;
    place.data = left % grid.data;
    place.pipeline = left / grid.data;
    return place;
}

int grid_rank(const GridPlace& place, const config::Grid& grid) {
    return static_cast<int>(place.tensor +
                            grid.tensor * (place.context + grid.context * (place.data + grid.data * place.pipeline)));
}

std::vector<int> ranks_along(int rank, const config::Grid& grid, std::initializer_list<Axis> axes) {
    const auto varies = [&](Axis axis) { return std::find(axes.begin(), axes.end(), axis) != axes.end(); };
    const GridPlace own = grid_place(rank, grid);
    std::vector<int> ranks;
    for (int other = 0; other < grid.ranks(); ++other) {
        const GridPlace place = grid_place(other, grid);
        if ((varies(Axis::tensor) || place.tensor == own.tensor) &&
            (varies(Axis::context) || place.context == own.context) && (varies(Axis::data) || place.data == own.data) &&
            (varies(Axis::pipeline) || place.pipeline == own.pipeline))
            ranks.push_back(other);
    }
    return ranks;
}

// All ranks create the groups in the same order, axis by axis, so that groups of one axis wait only for one another.
ProcessGroups make_groups(CommunicatorSource& source, int rank, const config::Grid& grid, const MessagesUsed& used) {
    ProcessGroups groups;
    groups.place = grid_place(rank, grid);
    groups.tensor = source.make(ranks_along(rank, grid, {Axis::tensor}), Use::collectives, "tensor");
    groups.replicas = source.make(ranks_along(rank, grid, {Axis::data, Axis::context}),
                                  used.replicas ? Use::exchanges : Use::collectives, "replicas");
    if (used.gathers)
        groups.gathers = source.make(ranks_along(rank, grid, {Axis::data, Axis::context}), Use::collectives, "gathers");
    groups.model = source.make(ranks_along(rank, grid, {Axis::tensor, Axis::pipeline}), Use::collectives, "model");
    groups.context = source.make(ranks_along(rank, grid, {Axis::context}), Use::transfers, "context");
    const std::vector<int> column = ranks_along(rank, grid, {Axis::pipeline});
    groups.activations = source.make(column, Use::transfers, "activations");
    groups.gradients = source.make(column, Use::transfers, "gradients");
    if (rank == column.front() || rank == column.back())
        groups.ends = source.make(column.size() > 1 ? std::vector<int>{column.front(), column.back()} : column,
                                  Use::collectives, "ends");
    return groups;
}

void use_once(const ProcessGroups& groups, const MessagesUsed& used, Tensor sent, Tensor received) {
    for (const auto* group : {&groups.tensor, &groups.replicas, &groups.gathers, &groups.model, &groups.ends})
        if (*group && (*group)->size() > 1) (*group)->all_reduce(sent, Reduce::sum);
    const auto pass = [&](Communicator& group, int from_rank, int to_rank) {
        std::unique_ptr<Transfer> receive, send;
        if (group.rank() == to_rank) receive = group.begin_receive(received, from_rank, 0);
        if (group.rank() == from_rank) send = group.begin_send(sent, to_rank, 0);
        if (receive) receive->wait();
        if (send) send->wait();
    };
    const int stages = groups.activations->size(), context = groups.context->size();
    for (int rank = 1; rank < context; ++rank) {
        pass(*groups.context, rank - 1, rank);
        pass(*groups.context, rank, rank - 1);
    }
    const auto exchange = [&](Communicator& group) {
        for (int distance = 1; distance < group.size(); ++distance) {
            const int to = (group.rank() + distance) % group.size();
            const int from = (group.rank() + group.size() - distance) % group.size();
            group.begin_exchange({{received, from, false}, {sent, to, true}}, 0)->wait();
        }
    };
    if (used.exchange) exchange(*groups.context);
    if (used.replicas) exchange(*groups.replicas);
    for (int rank = 1; rank < stages; ++rank) {
        pass(*groups.activations, rank - 1, rank);
        pass(*groups.gradients, rank, rank - 1);
    }
    if (!used.ring || stages < 2) return;
    pass(*groups.activations, stages - 1, 0);
    pass(*groups.gradients, 0, stages - 1);
}

}  // namespace lockstep::cluster
