// Ranks agree on the algorithms of matrix products, with a stand-in for the tuner.
#define BOOST_TEST_MODULE product_choices
#define BOOST_TEST_NO_MAIN
#include "train/product_choices.hpp"

#include <boost/test/unit_test.hpp>
#include <map>
#include <set>

#include "base/error.hpp"
#include "cluster/session.hpp"

using namespace lockstep;
using train::agree_on_products;
using train::ProductAgreement;
using train::ProductChoices;

namespace {

cluster::Session* session = nullptr;
cluster::HostGroup* everyone = nullptr;

class Tuner final : public kernels::ProductTuner {
  public:
    std::string library() const override { return name; }
    const std::vector<std::string>& kinds() const override { return own_kinds; }
    std::int64_t left_out() const override { return session->rank(); }
    std::vector<kernels::TimedAlgorithm> time(const std::string& kind) override {
        timed.push_back(kind);
        if (fails) throw fault_error("the timing fails");
        std::vector<kernels::TimedAlgorithm> list;
        for (std::size_t i = 0; i < seconds.size(); ++i)
            list.push_back({kind + " by algorithm " + std::to_string(i), seconds[i], runs_first && i == 0});
        return list;
    }
    bool accepts(const std::string&, const std::string& algorithm) override { return !refused.contains(algorithm); }
    void use(const std::string& kind, const std::string& algorithm) override { used[kind] = algorithm; }

    std::string name = "library 1 on GPU";
    std::vector<std::string> own_kinds;
    std::vector<double> seconds = {3, 1, 2};
    bool fails = false, runs_first = true;
    std::set<std::string> refused;
    std::vector<std::string> timed;
    std::map<std::string, std::string> used;
};

// What every rank has said, in rank order.
std::vector<std::string> all_of(const std::string& own) {
    std::vector<std::string> all;
    for (int rank = 0; rank < session->size(); ++rank) all.push_back(everyone->broadcast_text(own, rank));
    return all;
}

void check_same_on_all_ranks(const ProductAgreement& agreement) {
    for (const std::string& text : all_of(to_json(agreement.choices))) BOOST_TEST(text == to_json(agreement.choices));
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_fastest_of_the_lowest_rank_is_everyones) {
    Tuner tuner;
    tuner.own_kinds = {"a", "b"};
    if (session->rank() > 0) tuner.seconds = {1, 5, 0.5};  // would choose another
    const ProductAgreement agreement = agree_on_products(tuner, {}, *everyone);
    BOOST_TEST(tuner.used["a"] == "a by algorithm 1");
    BOOST_TEST(tuner.used["b"] == "b by algorithm 1");
    BOOST_TEST(tuner.timed.size() == (session->rank() == 0 ? 2u : 0u));
    BOOST_TEST(agreement.timed == 2);
    BOOST_TEST(agreement.kept == 0);
    BOOST_TEST(agreement.not_first == 2);
    BOOST_TEST(agreement.gain == 3.0);
    BOOST_TEST(agreement.left_out == session->size() - 1);
    check_same_on_all_ranks(agreement);
}

BOOST_AUTO_TEST_CASE(the_first_keeps_its_place_against_noise) {
    Tuner tuner;
    tuner.own_kinds = {"a"};
    tuner.seconds = {1, 0.99, 1.5};
    BOOST_TEST(agree_on_products(tuner, {}, *everyone).not_first == 0);
    BOOST_TEST(tuner.used["a"] == "a by algorithm 0");
}

BOOST_AUTO_TEST_CASE(the_first_may_not_run) {
    Tuner tuner;
    tuner.own_kinds = {"a"};
    tuner.seconds = {1, 0.99, 1.5};
    tuner.runs_first = false;  // what is timed are others
    const ProductAgreement agreement = agree_on_products(tuner, {}, *everyone);
    BOOST_TEST(tuner.used["a"] == "a by algorithm 1");
    BOOST_TEST(agreement.not_first == 1);
    BOOST_TEST(agreement.gain == 1.0);
}

// Stages of a pipeline have kinds of their own, and some have none.
BOOST_AUTO_TEST_CASE(ranks_may_have_different_kinds) {
    Tuner tuner;
    const int own = session->rank(), last = session->size() - 1;
    if (own < last || last == 0) tuner.own_kinds = {"shared", "of rank " + std::to_string(own)};
    const ProductAgreement agreement = agree_on_products(tuner, {}, *everyone);
    const std::int64_t distinct = 1 + std::max(1, last);
    BOOST_TEST(agreement.timed == distinct);
    BOOST_TEST(static_cast<std::int64_t>(tuner.used.size()) == distinct);  // all, whoever has it
    BOOST_TEST(tuner.timed.size() == (own == 0 ? 2u : tuner.own_kinds.empty() ? 0u : 1u));
    check_same_on_all_ranks(agreement);
}

BOOST_AUTO_TEST_CASE(what_is_known_is_not_timed_again) {
    Tuner first;
    first.own_kinds = {"a"};
    const ProductChoices known = agree_on_products(first, {}, *everyone).choices;
    Tuner second;
    second.own_kinds = {"a", "b"};
    second.seconds = {1, 2, 0.1};
    const ProductAgreement agreement = agree_on_products(second, known, *everyone);
    BOOST_TEST(second.used["a"] == "a by algorithm 1");
    BOOST_TEST(second.used["b"] == "b by algorithm 2");
    BOOST_TEST(agreement.kept == 1);
    BOOST_TEST(agreement.timed == 1);
    check_same_on_all_ranks(agreement);
}

BOOST_AUTO_TEST_CASE(another_library_or_gpu_has_choices_of_its_own) {
    Tuner first;
    first.own_kinds = {"a"};
    const ProductChoices known = agree_on_products(first, {}, *everyone).choices;
    Tuner other;
    other.own_kinds = {"a"};
    other.name = "library 2 on GPU";
    other.seconds = {3, 2, 1};
    const ProductAgreement agreement = agree_on_products(other, known, *everyone);
    BOOST_TEST(agreement.timed == 1);
    BOOST_TEST(other.used["a"] == "a by algorithm 2");
    BOOST_TEST(agreement.choices.at("library 1 on GPU").at("a").algorithm == "a by algorithm 1");  // it may come back

    // Ranks with different GPUs: each sort has its own.
    Tuner mixed;
    mixed.own_kinds = {"a"};
    if (session->rank() == 1) mixed.name = "library 1 on another GPU";
    const ProductAgreement among = agree_on_products(mixed, {}, *everyone);
    BOOST_TEST(among.timed == std::min(session->size(), 2));
    BOOST_TEST(mixed.timed.size() == (session->rank() < 2 ? 1u : 0u));
    BOOST_TEST(mixed.used.size() == 1u);
    check_same_on_all_ranks(among);
}

// One rank's refusal is enough: all take the new choice.
BOOST_AUTO_TEST_CASE(a_choice_that_is_refused_is_made_again) {
    Tuner first;
    first.own_kinds = {"a", "b"};
    const ProductChoices known = agree_on_products(first, {}, *everyone).choices;
    Tuner second;
    second.own_kinds = {"a", "b"};
    second.seconds = {3, 4, 0.1};
    const int last = session->size() - 1;
    if (session->rank() == last) second.refused.insert("a by algorithm 1");
    const ProductAgreement agreement = agree_on_products(second, known, *everyone);
    BOOST_TEST(agreement.timed == 1);
    BOOST_TEST(second.timed.size() == (session->rank() == last ? 1u : 0u));
    BOOST_TEST(second.used["a"] == "a by algorithm 2");
    BOOST_TEST(second.used["b"] == "b by algorithm 1");
    check_same_on_all_ranks(agreement);
}

BOOST_AUTO_TEST_CASE(a_kind_that_no_proposal_runs_has_no_choice) {
    Tuner tuner;
    tuner.own_kinds = {"a"};
    tuner.seconds = {};
    BOOST_TEST(agree_on_products(tuner, {}, *everyone).timed == 0);
    BOOST_TEST(tuner.used.empty());
}

BOOST_AUTO_TEST_CASE(a_rank_that_fails_ends_all) {
    Tuner tuner;
    tuner.own_kinds = {"of rank " + std::to_string(session->rank())};
    tuner.fails = session->rank() + 1 == session->size();
    BOOST_CHECK_THROW(agree_on_products(tuner, {}, *everyone), Error);
}

BOOST_AUTO_TEST_CASE(files_hold_all_and_damage_is_found) {
    Tuner tuner;
    tuner.own_kinds = {"a \"quoted\" kind", "b"};
    tuner.seconds = {0.1, 1.0 / 3e7};
    const ProductChoices choices = agree_on_products(tuner, {}, *everyone).choices;
    const std::string text = to_json(choices);
    BOOST_TEST((train::product_choices_from_json(text) == choices));
    BOOST_TEST((train::product_choices_from_json(train::to_json({})) == ProductChoices()));

    int found = 0;
    const auto check = [&](const std::string& changed) {
        try {
            const bool same = train::product_choices_from_json(changed) == choices;
            BOOST_TEST(same, changed);  // a blank for another, say
        } catch (const Error& error) {
            BOOST_TEST((error.code() == ExitCode::damaged));
            ++found;
        }
    };
    for (std::size_t i = 0; i < text.size(); ++i) {
        for (const char other : {'0', 'x', '"', '}', ' ', '\0', '\xff'}) {
            std::string changed = text;
            changed[i] = other;
            check(changed);
        }
        check(text.substr(0, i));
    }
    BOOST_TEST(found > static_cast<int>(4 * text.size()));
    for (const char* other : {"", "[]", "{}", "null", "7", "{\"format\": 1, \"libraries\": []}"})
        BOOST_CHECK_THROW(train::product_choices_from_json(other), Error);
}

int main(int argc, char** argv) {
    cluster::Session started(&argc, &argv);
    session = &started;
    return started.run([&] {
        const auto made = started.make_world_group();
        everyone = made.get();
        return boost::unit_test::unit_test_main(init_unit_test, argc, argv);
    });
}
