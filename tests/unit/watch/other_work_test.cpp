// Interruptions by other programs are said once, when they last.
#define BOOST_TEST_MODULE other_work
#include "watch/other_work.hpp"

#include <boost/test/unit_test.hpp>

using lockstep::watch::OtherWork;

BOOST_AUTO_TEST_CASE(few_interruptions_are_not_worth_a_word) {
    OtherWork work(2);
    BOOST_TEST(!work.look(0, 0));
    for (int look = 1; look < 10; ++look) BOOST_TEST(!work.look(10.0 * look, 10L * look * 2 * 99));
}

BOOST_AUTO_TEST_CASE(many_are_said_once_with_their_rate) {
    OtherWork work(2);
    BOOST_TEST(!work.look(5, 1'000'000));  // those before training do not count
    BOOST_TEST(!work.look(14.9, 1'010'000));
    const auto said = work.look(25, 1'000'000 + 20L * 2 * 150);
    BOOST_TEST_REQUIRE(said.has_value());
    BOOST_TEST(said->find("interrupted 150 times a second") != std::string::npos, *said);
    BOOST_TEST(!work.look(35, 2'000'000));
}

BOOST_AUTO_TEST_CASE(the_rate_is_that_of_the_last_seconds) {
    OtherWork work(1);
    BOOST_TEST(!work.look(0, 0));
    BOOST_TEST(!work.look(1000, 50'000));
    BOOST_TEST(work.look(1010, 51'000).has_value());
}

BOOST_AUTO_TEST_CASE(this_process_can_be_looked_at) {
    OtherWork work(1);
    BOOST_TEST(!work.look());
}
