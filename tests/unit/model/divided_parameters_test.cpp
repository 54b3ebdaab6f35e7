// Parameters of which replicas keep parts: what each holds, and what it computes with once it was gathered.
#include <boost/test/unit_test.hpp>
#include <cstring>

#include "model/parameters.hpp"
#include "unit/model/small_models.hpp"

using namespace lockstep;
using model::ParameterSet;
using model::Piece;

namespace {

constexpr std::int64_t replicas = 3;

struct Divided {
    model::ParameterLayout layout;
    std::vector<model::Window> windows;
    std::vector<std::vector<Piece>> owned;  // by replica
};

// Windows of whole parameters, about as many as there are names; two buffers, in turn.
Divided divide(const config::ModelDescription& model) {
    Divided divided{{model::describe_parameters(model, model::whole_model(model)), {}}, {}, {}};
    divided.owned.resize(replicas);
    const model::ParameterLayout& layout = divided.layout;
    std::int64_t begin = 0;
    for (std::size_t i = 1; i <= layout.size(); ++i) {
        const std::int64_t end = i < layout.size() ? layout.offset(i) : layout.total();
        if (i % 3 != 0 && i < layout.size()) continue;
        divided.windows.push_back({{begin, end - begin}, divided.windows.size() % 2});
        constexpr std::int64_t unit = model::ParameterLayout::alignment;
        std::int64_t cut = begin;
        for (std::int64_t replica = 0; replica < replicas; ++replica) {
            const std::int64_t until =
                replica + 1 < replicas ? begin + (end - begin) / unit * (replica + 1) / replicas * unit : end;
            divided.owned[static_cast<std::size_t>(replica)].push_back({cut, until - cut});
            cut = until;
        }
        begin = end;
    }
    return divided;
}

std::vector<char> bytes_of(const Tensor& tensor) {
    std::vector<char> bytes(tensor.bytes());
    std::memcpy(bytes.data(), tensor.data(), bytes.size());
    return bytes;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(divided_parameters)

BOOST_AUTO_TEST_CASE(gathered_windows_are_what_one_rank_computes_with) {
    const config::ModelDescription model = test::small_model("ttt-linear");
    const Divided divided = divide(model);
    const auto backend = kernels::make_cpu_backend();
    for (const Type type : {Type::fp32, Type::bf16}) {
        ParameterSet whole({}, divided.layout, true, type);
        whole.initialize(*backend, 7);
        std::vector<std::unique_ptr<ParameterSet>> sets;
        for (const auto& owned : divided.owned) {
            sets.push_back(std::make_unique<ParameterSet>(Device{}, divided.layout, true, type,
                                                          model::Division{owned, divided.windows, true, true}));
            sets.back()->initialize(*backend, 7);
            BOOST_TEST(sets.back()->all_values().empty());
            BOOST_TEST(sets.back()->all_working().empty());
            BOOST_TEST(sets.back()->all_gradients().empty());
            BOOST_TEST(sets.back()->value_bytes() < whole.value_bytes() * 2 / 3);
            BOOST_TEST(sets.back()->gradient_bytes() < whole.gradient_bytes() * 2 / 3);
        }
        ParameterSet& first = *sets.front();
        for (const model::Window& window : divided.windows) {
            for (const auto& set : sets) set->fill_own_part(*backend, window.range);
            // A gathering, by hand: each owner's part to the first rank.
            for (std::size_t replica = 1; replica < sets.size(); ++replica)
                for (const Piece& piece : divided.owned[replica])
                    if (piece.first >= window.range.first && piece.count > 0 &&
                        piece.first + piece.count <= window.range.first + window.range.count)
                        backend->copy(first.window(piece), sets[replica]->window(piece));
            for (std::size_t i = 0; i < divided.layout.size(); ++i) {
                const std::int64_t at = divided.layout.offset(i) - window.range.first;
                if (at < 0 || at >= window.range.count) continue;
                const std::string& name = divided.layout.descriptions()[i].name;
                BOOST_TEST((bytes_of(first.working(name)) == bytes_of(whole.working(name))), name);
            }
        }
    }
}

// In 16 bits, exact ones apart; two replicas, each with half of every window.
BOOST_AUTO_TEST_CASE(frozen_parameters_are_kept_in_pieces) {
    config::ModelDescription model = test::small_model("ttt-mlp");
    model.frozen = {"embedding/*", "blocks/0/*", "*norm/*"};
    const model::ParameterLayout layout(model::describe_parameters(model, model::whole_model(model)), {});
    const auto backend = kernels::make_cpu_backend();
    const std::int64_t trained = layout.trained_total(), frozen = layout.total() - trained;
    const std::int64_t half = frozen / 2 / model::ParameterLayout::alignment * model::ParameterLayout::alignment;
    for (const Type type : {Type::fp32, Type::bf16}) {
        ParameterSet whole({}, layout, false, type);
        whole.initialize(*backend, 7);
        std::vector<std::unique_ptr<ParameterSet>> sets;
        for (const int replica : {0, 1}) {
            model::Division division{{{replica * trained / 2 / 128 * 128, 128}}, {{{0, trained}, 0}}, false, true};
            division.frozen_windows = {{{trained, frozen}, 1}};
            division.frozen_owned = {replica == 0 ? Piece{trained, half} : Piece{trained + half, frozen - half}};
            sets.push_back(std::make_unique<ParameterSet>(Device{}, layout, false, type, division));
            sets.back()->initialize(*backend, 7);
            sets.back()->fill_own_part(*backend, {trained, frozen});
        }
        for (std::size_t i = 0; i < layout.size(); ++i) {
            const auto& parameter = layout.descriptions()[i];
            if (parameter.trained) continue;
            std::int64_t count = 0;
            for (const auto& set : sets)
                for (const auto& part : set->frozen_parts(i)) {
                    count += part.value.count();
                    const Tensor expected = whole.frozen_value(i);
                    const Tensor flat = expected.reshaped({expected.count()}).slice(part.first, part.value.count());
                    BOOST_TEST((bytes_of(part.value.reshaped({part.value.count()})) == bytes_of(flat)), parameter.name);
                }
            const bool apart = parameter.exact && type != Type::fp32;  // kept whole by both
            BOOST_TEST(count == layout.count(i) * (apart ? 2 : 1), parameter.name);
        }
    }
}

BOOST_AUTO_TEST_CASE(sums_of_gradients_lie_beside_each_other) {
    const config::ModelDescription model = test::small_model("attention");
    const Divided divided = divide(model);
    const auto backend = kernels::make_cpu_backend();
    const ParameterSet set({}, divided.layout, true, Type::fp32, {divided.owned[1], divided.windows, true, false});
    float number = 0;
    std::int64_t before = 0;
    const float* start = nullptr;
    for (const Piece& piece : set.owned()) {
        if (piece.count == 0) continue;
        const Tensor sums = set.owned_gradients(piece);
        BOOST_TEST(sums.count() == piece.count);
        if (start == nullptr) start = sums.fp32();
        BOOST_TEST((sums.fp32() == start + before));
        before += piece.count;
        backend->fill(sums, ++number);
        BOOST_TEST(set.owned_gradients({piece.first + piece.count - 1, 1}).fp32()[0] == number);
    }
    for (const std::string name : {"embedding/weight", "blocks/0/mixer/query/weight"})
        BOOST_TEST(set.gradient(name).fp32()[0] == 0, name);  // elsewhere
    BOOST_CHECK_THROW(set.owned_gradients({0, 1}), Error);    // the first replica's
}

BOOST_AUTO_TEST_SUITE_END()
