// Attention over one sequence, forward and backward: on one rank, and divided among all, in turns. docs/benchmarks.md
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/table.hpp"
#include "cluster/session.hpp"
#include "measure.hpp"
#include "model/mixers/divided_attention.hpp"

using namespace lockstep;
using namespace lockstep::bench;

namespace {

struct Options {
    std::int64_t length = 8192, batch = 1, heads = 12, key_heads = 12, width = 64, rounds = 5;
    int threads = 1;
    std::string type = "fp32", format = "text";
};

// Counts what this rank receives.
class Counted final : public cluster::Communicator {
  public:
    explicit Counted(cluster::Communicator& group) : group_(group) {}
    int rank() const override { return group_.rank(); }
    int size() const override { return group_.size(); }
    void all_reduce(Tensor values, cluster::Reduce operation) override { group_.all_reduce(values, operation); }
    void begin_all_reduce(Tensor values, cluster::Reduce operation) override {
        group_.begin_all_reduce(values, operation);
    }
    void begin_reduce_scatter(Tensor values, const std::vector<std::int64_t>& cuts) override {
        group_.begin_reduce_scatter(values, cuts);
    }
    void begin_all_gather(Tensor values, const std::vector<std::int64_t>& cuts) override {
        group_.begin_all_gather(values, cuts);
    }
    void finish_collectives() override { group_.finish_collectives(); }
    std::unique_ptr<cluster::Transfer> begin_send(Tensor values, int to, int tag) override {
        return group_.begin_send(values, to, tag);
    }
    std::unique_ptr<cluster::Transfer> begin_receive(Tensor values, int from, int tag) override {
        bytes += static_cast<double>(values.bytes());
        return group_.begin_receive(values, from, tag);
    }

    double bytes = 0;

  private:
    cluster::Communicator& group_;
};

struct Tensors {
    Tensors(Arena& arena, const Options& options, Type type, std::int64_t length) {
        const Shape queries = {options.batch * length, options.heads * options.width};
        const Shape keys = {options.batch * length, options.key_heads * options.width};
        for (Tensor* tensor : {&q, &dy, &dq, &y}) *tensor = make(arena, type, queries);
        for (Tensor* tensor : {&k, &v, &dk, &dv}) *tensor = make(arena, type, keys);
        log_sum_exp = make(arena, {options.batch, options.heads, length});
    }
    Tensor q, k, v, y, log_sum_exp, dy, dq, dk, dv;
};

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

struct Times {
    std::vector<double> forward, backward;
};

void measure(cluster::Session& session, const Options& options) {
    const Type type = options.type == "bf16" ? Type::bf16 : Type::fp32;
    const int ranks = session.size();
    if (ranks < 2) throw usage_error("run it on two ranks or more: mpirun -np 2 bench_context_attention");
    if (options.length % ranks != 0)
        throw usage_error("--length = {} does not divide evenly among {} ranks", options.length, ranks);
    if (options.heads % options.key_heads != 0)
        throw usage_error("--key-heads = {} does not divide --heads = {}", options.key_heads, options.heads);
    set_threads(options.threads);
    const auto world = session.make_world_group();
    std::vector<int> everyone(static_cast<std::size_t>(ranks));
    std::iota(everyone.begin(), everyone.end(), 0);
    const auto group = cluster::make_mpi_communicator_source()->make(everyone, cluster::Use::transfers);
    Counted counted(*group);
    const model::ContextChain chain(counted, nullptr, -1);
    const auto backend = kernels::make_cpu_backend();
    const model::PassShape stretch{options.batch, options.length / ranks};
    const model::DividedAttention attention(chain, type, {options.heads, options.key_heads, options.width, false}, 0);

    Arena plan;
    const Tensors planned(plan, options, type, stretch.length);
    Arena whole_plan;
    const Tensors planned_whole(whole_plan, options, type, options.length);
    Arena memory(Device{}, plan.peak(), "a benchmark");
    const Tensors here(memory, options, type, stretch.length);
    Arena rank_0(Device{}, session.rank() == 0 ? whole_plan.peak() : 0, "a benchmark");
    Arena temporaries;
    attention.plan_workspace(temporaries, stretch, model::Direction::forward);
    attention.plan_workspace(temporaries, stretch, model::Direction::backward);
    Arena workspace(Device{}, temporaries.peak(), "a benchmark");

    std::optional<Tensors> whole;
    if (session.rank() == 0) whole.emplace(rank_0, options, type, options.length);
    Times alone, divided;
    const kernels::AttentionShape shape{options.batch, options.length,    options.length,
                                        options.heads, options.key_heads, options.width};
    double forward_bytes = 0, backward_bytes = 0;
    const auto timed = [&](std::vector<double>& times, auto&& work) {
        world->barrier();
        const double begun = seconds_now();
        work();
        world->barrier();
        times.push_back(seconds_now() - begun);
    };
    for (std::int64_t round = 0; round <= options.rounds; ++round) {
        timed(alone.forward, [&] {
            if (whole) backend->attention_forward(whole->y, whole->log_sum_exp, whole->q, whole->k, whole->v, shape);
        });
        timed(alone.backward, [&] {
            if (whole)
                backend->attention_backward(whole->dq, whole->dk, whole->dv, whole->dy, whole->q, whole->k, whole->v,
                                            whole->y, whole->log_sum_exp, shape);
        });
        counted.bytes = 0;
        timed(divided.forward, [&] {
            attention.forward(*backend, workspace, here.y, here.log_sum_exp, here.q, here.k, here.v, stretch);
        });
        forward_bytes = std::exchange(counted.bytes, 0);
        timed(divided.backward, [&] {
            attention.backward(*backend, workspace, here.dq, here.dk, here.dv, here.dy, here.q, here.k, here.v, here.y,
                               here.log_sum_exp, stretch);
        });
        backward_bytes = counted.bytes;
        if (round == 0) alone = divided = {};  // first touches of memory
    }
    forward_bytes = world->all_sum(forward_bytes) / ranks;
    backward_bytes = world->all_sum(backward_bytes) / ranks;
    if (session.rank() != 0) return;
    Table table({{"direction", "", 0},
                 {"one_rank_s", "one rank, s", 3},
                 {"divided_s", fmt::format("{} ranks, s", ranks), 3},
                 {"speedup", "speedup", 2},
                 {"received_mb", "received per rank, MB", 1},
                 {"ring_mb", "with a ring, MB", 1}});
    const double keys = static_cast<double>(2 * stretch.rows() * options.key_heads * options.width) *
                        static_cast<double>(type_bytes(type)) * (ranks - 1);
    const auto add = [&](const char* name, double one, double many, double bytes, double ring) {
        table.add_row({name, one, many, one / many, bytes / 1e6, ring / 1e6});
    };
    const double forward = median(alone.forward), backward = median(alone.backward);
    const double divided_forward = median(divided.forward), divided_backward = median(divided.backward);
    add("forward", forward, divided_forward, forward_bytes, keys);
    add("backward", backward, divided_backward, backward_bytes, 2 * keys);
    add("both", forward + backward, divided_forward + divided_backward, forward_bytes + backward_bytes, 3 * keys);
    std::fputs(table.print(table_format(options.format)).c_str(), stdout);
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app("Times attention over one sequence, alternating between one rank and all ranks.");
    app.add_option("--length", options.length, "tokens per sequence")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--batch", options.batch, "sequences")->check(CLI::PositiveNumber)->capture_default_str();
    app.add_option("--heads", options.heads)->check(CLI::PositiveNumber)->capture_default_str();
    app.add_option("--key-heads", options.key_heads, "key and value heads")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--head-width", options.width)->check(CLI::PositiveNumber)->capture_default_str();
    app.add_option("--type", options.type)->check(CLI::IsMember({"fp32", "bf16"}))->capture_default_str();
    app.add_option("--threads", options.threads, "threads per rank")->check(CLI::PositiveNumber)->capture_default_str();
    app.add_option("--rounds", options.rounds, "rounds; the median is shown")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--format", options.format, "text, markdown, csv or json")->capture_default_str();
    cluster::Session session(&argc, &argv);
    return session.run([&] {
        try {
            app.parse(argc, argv);
        } catch (const CLI::ParseError& error) {
            if (session.rank() == 0) return app.exit(error);
            return error.get_exit_code();
        }
        measure(session, options);
        return 0;
    });
}
