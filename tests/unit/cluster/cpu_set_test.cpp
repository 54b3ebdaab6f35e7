#define BOOST_TEST_MODULE cpu_set
#include <boost/test/unit_test.hpp>

#include "base/error.hpp"
#include "cluster/cpu_set.hpp"

using namespace lockstep;
using cluster::CpuSet;

BOOST_AUTO_TEST_CASE(lists_are_short_and_read_back) {
    const std::vector<std::pair<std::vector<int>, std::string>> cases = {
        {{}, ""},
        {{5}, "5"},
        {{3, 1, 2, 0, 2}, "0-3"},
        {{0, 1, 2, 8}, "0-2,8"},
        {{0, 4, 8, 12}, "0-12:4"},
        {{0, 4, 8}, "0,4,8"},
        {{0, 1, 2, 3, 88, 92, 96, 100, 104}, "0-3,88-104:4"},
        {{1, 3, 4, 5}, "1,3-5"}};
    for (const auto& [units, text] : cases) {
        BOOST_TEST(CpuSet(units).text() == text);
        BOOST_TEST((CpuSet::parse(text) == CpuSet(units)), text);
    }
}

BOOST_AUTO_TEST_CASE(what_is_no_list_is_refused) {
    for (const char* text : {"a", "1-", "-1", "3-1", "1,", ",1", "1 2", "0-8:0", "0-8:", "99999999999", "70000"})
        BOOST_CHECK_THROW(CpuSet::parse(text), Error);
}

BOOST_AUTO_TEST_CASE(operations_of_sets) {
    const CpuSet a = CpuSet::parse("0-5"), b = CpuSet::parse("4-9");
    BOOST_TEST((a & b).text() == "4-5");
    BOOST_TEST((a | b).text() == "0-9");
    BOOST_TEST((a - b).text() == "0-3");
    BOOST_TEST(a.overlaps(b));
    BOOST_TEST(!(a - b).overlaps(b));
    BOOST_TEST(a.contains(5));
    BOOST_TEST(!a.contains(6));
    BOOST_TEST(a.size() == 6);
}
