// Tensors written in one spread over the ranks and read in another.
#define BOOST_TEST_MODULE checkpoint_spread_mpi
#define BOOST_TEST_NO_MAIN
#include <boost/test/unit_test.hpp>
#include <functional>

#include "base/log.hpp"
#include "checkpoint/holdings.hpp"
#include "checkpoint/transfer.hpp"
#include "kernels/backend.hpp"
#include "mpi/checkpoint_world.hpp"
#include "spread_fixture.hpp"

using namespace lockstep;
using namespace lockstep::checkpoint_tests;
namespace fs = std::filesystem;

namespace {

// 1 to 4 axes, odd sizes, and two tensors of more than a block (1 Mi elements), one of them in narrow rows.
std::vector<Tensors::Named> tensors() {
    return {{"parameters/embedding/weight", {1031, 1030}},
            {"parameters/blocks/0/mixer/inner", {5, 7, 3}},
            {"parameters/blocks/0/mixer/weight", {3, 4, 2, 5}},
            {"parameters/blocks/1/norm", {13}},
            {"parameters/one", {1}},
            {"optimizer/first_moment/embedding/weight", {131101, 9}},
            {"optimizer/first_moment/blocks/1/norm", {13}}};
}

std::int64_t part_of_whole(std::int64_t count, int index, int parts) {
    return count * index / parts;
}

// The parts of a tensor that a rank holds. `number` is the tensor's in the list.
struct Spread {
    std::string name;
    std::function<std::vector<Part>(const Shape& shape, std::size_t number, int rank, int ranks)> parts;
    bool on_device = false;
};

Part everything(const Shape& shape) {
    return {0, 0, shape[0], 0, element_count(shape)};
}

Part slice(const Shape& shape, int axis, std::int64_t first, std::int64_t last) {
    const std::int64_t size = shape[static_cast<std::size_t>(axis)];
    return {axis, first, last - first, 0, element_count(shape) / size * (last - first)};
}

Part slice(const Shape& shape, int axis, int index, int parts) {
    if (axis >= static_cast<int>(shape.size())) return everything(shape);
    const std::int64_t size = shape[static_cast<std::size_t>(axis)];
    return slice(shape, axis, part_of_whole(size, index, parts), part_of_whole(size, index + 1, parts));
}

Part run_of(Part part, int index, int parts) {
    const std::int64_t first = part_of_whole(part.count, index, parts);
    part.count = part_of_whole(part.count, index + 1, parts) - first;
    part.first += first;
    return part;
}

using Parts = std::vector<Part>;

Parts columns(const Shape& shape, std::size_t, int rank, int ranks) {
    return {slice(shape, 1, rank, ranks)};
}

const std::vector<Spread> spreads = {
    {"whole on every rank", [](const Shape& shape, std::size_t, int, int) { return Parts{everything(shape)}; }},
    {"slices of axis 0",
     [](const Shape& shape, std::size_t, int rank, int ranks) { return Parts{slice(shape, 0, rank, ranks)}; }},
    {"slices of axis 1", columns},
    {"slices of axis 1 on a device", columns, true},
    {"tensors on different ranks",
     [](const Shape& shape, std::size_t number, int rank, int ranks) {
         return static_cast<int>(number) % ranks == rank ? Parts{everything(shape)} : Parts{};
     }},
    {"runs of whole tensors", [](const Shape& shape, std::size_t, int rank,
                                 int ranks) { return Parts{run_of(everything(shape), ranks - 1 - rank, ranks)}; }},
    {"runs of slices",
     [](const Shape& shape, std::size_t, int rank, int ranks) {
         const int slices = std::min(2, ranks), in_slice = rank % slices;
         return Parts{
             run_of(slice(shape, 1, in_slice, slices), rank / slices, (ranks - in_slice + slices - 1) / slices)};
     }},
    {"uneven slices",  // nearly everything on the last rank, nothing on some
     [](const Shape& shape, std::size_t, int rank, int ranks) {
         const int axis = shape.size() > 1 ? 1 : 0;
         const std::int64_t size = shape[static_cast<std::size_t>(axis)];
         const std::int64_t first = std::min<std::int64_t>(rank, size - 1);
         return Parts{slice(shape, axis, first, rank == ranks - 1 ? size : std::min<std::int64_t>(rank + 1, size - 1))};
     }},
    {"all on the last rank", [](const Shape& shape, std::size_t, int rank,
                                int ranks) { return rank == ranks - 1 ? Parts{everything(shape)} : Parts{}; }},
    {"several parts that overlap",
     [](const Shape& shape, std::size_t number, int rank, int ranks) {
         if ((rank + static_cast<int>(number)) % 2 == 1) return Parts{slice(shape, 1, rank, ranks), everything(shape)};
         return Parts{run_of(everything(shape), 0, 3), slice(shape, 0, 0, 2), run_of(slice(shape, 1, 0, 1), 1, 3),
                      run_of(everything(shape), 2, 3)};
     }},
    {"parts on a device and not",
     [](const Shape& shape, std::size_t, int rank, int) {
         return rank % 2 == 0 ? Parts{slice(shape, 1, 0, 2), slice(shape, 1, 1, 2)} : Parts{};
     },
     true},
};

// What this rank holds of the tensors in a spread, in memory of its own.
class Held {
  public:
    Held(const Spread& spread, const Tensors& tensors, int rank, int ranks) {
        for (std::size_t number = 0; number < tensors.entries.size(); ++number) {
            const Entry& tensor = tensors.entries[number];
            const auto parts = spread.parts(tensor.shape, number, rank, ranks);
            for (std::size_t i = 0; i < parts.size(); ++i) {
                const Part& part = parts[i];
                expected_.emplace_back();
                for (const auto element : elements_of_part(tensor.shape, part))
                    expected_.back().push_back(tensor.value.fp32()[element]);
                values_.push_back(expected_.back());
                // Only one of the parts: they are copied side by side.
                kernels::Backend* device = spread.on_device && i == 0 ? backend_.get() : nullptr;
                entries.push_back({tensor.path, tensor.shape, part.axis, part.offset, part.extent, part.first,
                                   Tensor(values_.back().empty() ? nullptr : values_.back().data(), Type::fp32,
                                          {static_cast<std::int64_t>(values_.back().size())}),
                                   device});
            }
        }
    }
    void remember() { values_ = expected_; }  // where they were
    void forget() {
        for (auto& values : values_) std::fill(values.begin(), values.end(), -1.0f);
    }
    bool as_written() const { return values_ == expected_; }

    std::vector<Entry> entries;

  private:
    std::unique_ptr<kernels::Backend> backend_ = kernels::make_cpu_backend();
    std::vector<std::vector<float>> values_, expected_;
};

const Tensors& whole() {
    static const Tensors tensors_of_file(tensors());
    return tensors_of_file;
}

// What this rank holds in each of the spreads, with the values of whole().
std::vector<std::unique_ptr<Held>>& all_held() {
    static std::vector<std::unique_ptr<Held>> all;
    for (std::size_t i = all.size(); i < spreads.size(); ++i)
        all.push_back(std::make_unique<Held>(spreads[i], whole(), session->rank(), session->size()));
    for (auto& held : all) held->remember();
    return all;
}

// Whether the error is of this kind and says this, in the same sentence on every rank.
bool is_alike_everywhere(const Error& error, ExitCode code, const std::string& words) {
    const std::string here = error.what();
    BOOST_TEST_MESSAGE(here);
    return world()->broadcast_text(here, 0) == here && error.code() == code && here.find(words) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_CASE(what_is_written_in_one_spread_is_read_in_another) {
    const std::string folder = shared_folder("spread_pairs");
    const auto group = world();
    if (group->rank() == 0) solo_writer(folder + "/alone").write_now(some_contents(1), whole().entries);
    auto& held = all_held();
    for (std::size_t from = 0; from < spreads.size(); ++from) {
        const std::string own = fmt::format("{}/{}", folder, from);
        checkpoint::Writer writer(own, 2, world());
        held[from]->remember();
        BOOST_TEST(writer.begin(some_contents(1), held[from]->entries), spreads[from].name);
        held[from]->forget();  // the file holds what was there at begin
        BOOST_TEST(writer.commit(), spreads[from].name);
        group->barrier();
        if (group->rank() == 0)
            BOOST_TEST((bytes_of(in(own, 1)) == bytes_of(in(folder + "/alone", 1))), spreads[from].name);
        // From where they are, as far as they can stay there.
        held[from]->remember();
        checkpoint::Writer late(own + "-late", 2, world(), config::CheckpointVerify::written);
        BOOST_TEST(late.begin(some_contents(1), held[from]->entries, checkpoint::Values::left_in_place));
        late.release();
        held[from]->forget();
        BOOST_TEST(late.commit(), spreads[from].name);
        if (group->rank() == 0)
            BOOST_TEST((bytes_of(in(own + "-late", 1)) == bytes_of(in(folder + "/alone", 1))), spreads[from].name);
        group->barrier();
        // By five of the spreads, the one it was written in among them.
        for (const std::size_t distance : {0, 1, 3, 4, 8}) {
            const std::size_t to = (from + distance) % spreads.size();
            held[to]->forget();
            checkpoint::load(in(own, 1), held[to]->entries, *group);
            BOOST_TEST(held[to]->as_written(), spreads[from].name << ", then " << spreads[to].name);
        }
        group->barrier();
    }
}

// As large models do: their shares take many rounds, and many ranks send one after the other, so that no rank receives
// too much at a time.
BOOST_AUTO_TEST_CASE(a_share_may_take_many_rounds) {
    const std::string folder = shared_folder("spread_rounds");
    const auto group = world();
    const int rank = group->rank(), ranks = group->size();
    const std::string path = in(folder + "/alone", 1);
    if (rank == 0) solo_writer(folder + "/alone").write_now(some_contents(1), whole().entries);
    group->barrier();
    checkpoint::Layout layout = checkpoint::read_header(path).layout;
    std::erase_if(layout.places, checkpoint::is_tokenizer_file);
    const auto file = OpenFile::for_reading(path);
    for (std::size_t i = 0; i < spreads.size(); ++i)
        for (const std::int64_t elements : {60'013, 1'300'000, 16 << 20}) {
            Held& held = *all_held()[i];
            const auto holdings = checkpoint::gather_holdings(layout.places, held.entries, *group);
            checkpoint::Collector collector(layout, holdings.spreads, held.entries, *group, elements);
            collector.check_cover();
            checkpoint::Snapshot collected;
            BOOST_TEST(!collector.collect(collected).has_value());
            std::vector<float> block(layout.block_bytes / sizeof(float));
            bool same = true;
            const auto share = checkpoint::share_of_blocks(layout, rank, ranks);
            for (std::size_t number = 0; number < share.size(); ++number) {
                checkpoint::read_block(file, path, layout, share[number], block.data());
                same = same && std::memcmp(collected.block(number), block.data(), share[number].bytes) == 0;
            }
            BOOST_TEST(same, spreads[i].name << ", " << elements);
            const auto reading = checkpoint::reading_of(OpenFile::for_reading(path), layout, rank, ranks);
            for (const std::int64_t most_received : {std::int64_t{1}, 2 * elements, checkpoint::elements_in_flight}) {
                held.forget();
                checkpoint::Distributor(reading, layout, holdings.spreads, held.entries, *group, elements,
                                        most_received)
                    .distribute();
                BOOST_TEST(held.as_written(), spreads[i].name << ", " << elements << ", " << most_received);
            }
        }
}

BOOST_AUTO_TEST_CASE(a_part_that_no_rank_holds_is_named) {
    const std::string folder = shared_folder("spread_hole");
    const auto group = world();
    checkpoint::Writer writer(folder, 2, world());
    // In the second block of this tensor, and a tensor that is named and held by nobody.
    for (const bool all : {false, true}) {
        auto entries = all_held()[1]->entries;
        const std::string path = all ? "parameters/one" : "optimizer/first_moment/embedding/weight";
        for (auto& entry : entries) {
            if (entry.path != path) continue;
            if (all)
                entry.value = Tensor();
            else if (group->rank() == group->size() - 1)
                entry.value = entry.value.slice(0, entry.value.count() - 2);
        }
        BOOST_CHECK_EXCEPTION(writer.begin(some_contents(1), entries), Error, [&](const Error& error) {
            return is_alike_everywhere(error, ExitCode::fault,
                                       all ? "no rank holds elements 0 to 1 of " + path
                                           : "no rank holds elements 1179907 to 1179909 of " + path);
        });
        group->barrier();
        BOOST_TEST(fs::is_empty(folder));
    }
    BOOST_TEST(writer.write_now(some_contents(1), all_held()[1]->entries));
}

BOOST_AUTO_TEST_CASE(another_model_is_named_alike_on_every_rank) {
    const std::string folder = shared_folder("spread_another_model");
    const auto group = world();
    const bool is_last = group->rank() == group->size() - 1;
    checkpoint::Writer(folder, 2, world()).write_now(some_contents(1), whole().entries);
    const auto check = [&](const std::vector<Entry>& entries, const std::string& words) {
        BOOST_CHECK_EXCEPTION(checkpoint::load(in(folder, 1), entries, *group), Error,
                              [&](const Error& error) { return is_alike_everywhere(error, ExitCode::usage, words); });
    };
    const auto& on_different_ranks = all_held()[4]->entries;
    auto entries = on_different_ranks;
    std::vector<float> more(6);
    if (is_last) entries.push_back(checkpoint::whole("parameters/more", Tensor(more.data(), Type::fp32, {6}), nullptr));
    check(entries, "does not hold parameters/more");
    entries = on_different_ranks;
    if (is_last) entries.push_back({"parameters/blocks/1/norm", {12}, 0, 0, 12, 0, Tensor(), nullptr});
    check(entries, "parameters/blocks/1/norm is [13] there and [12] in this model");
    entries = on_different_ranks;
    std::erase_if(entries, [](const Entry& entry) { return entry.path == "parameters/blocks/1/norm"; });
    check(entries, "it holds parameters/blocks/1/norm, which this model does not have");
    // It is enough that a rank names it.
    if (is_last) entries.push_back({"parameters/blocks/1/norm", {13}, 0, 0, 13, 0, Tensor(), nullptr});
    checkpoint::load(in(folder, 1), entries, *group);
    // A group that no rank asks for may be anything.
    std::erase_if(entries, [](const Entry& entry) { return entry.path.starts_with("optimizer/"); });
    checkpoint::load(in(folder, 1), entries, *group);
}

BOOST_AUTO_TEST_CASE(a_damaged_block_is_reported_alike_on_every_rank) {
    const std::string folder = shared_folder("spread_damage");
    const auto group = world();
    checkpoint::Writer(folder, 2, world()).write_now(some_contents(1), whole().entries);
    for (const std::size_t number : {std::size_t{0}, std::size_t{3}}) {
        const Entry& entry = whole().entries[number];
        // Once more, and it is whole again.
        const auto flip = [&] {
            group->barrier();
            if (group->rank() == 0)
                for (const auto& place : checkpoint::read_header(in(folder, 1)).layout.places)
                    if (place.path == entry.path) flip_bit(in(folder, 1), place.offset + place.bytes - 5, 1);
            group->barrier();
        };
        flip();
        for (const auto& held : all_held()) {
            BOOST_CHECK_EXCEPTION(
                checkpoint::load(in(folder, 1), held->entries, *group), Error,
                [&](const Error& error) { return is_alike_everywhere(error, ExitCode::damaged, entry.path); });
        }
        flip();
    }
}

int main(int argc, char** argv) {
    cluster::Session started(&argc, &argv);
    session = &started;
    log::set_rank(started.rank());
    return started.run([&] { return boost::unit_test::unit_test_main(init_unit_test, argc, argv); });
}
