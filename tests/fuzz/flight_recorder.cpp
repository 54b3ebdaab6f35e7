// Flight recorders of ranks that may have been killed at any moment. An input overwrites a page: the place of each
// eight bytes, as two, and the bytes.
#include <cstring>
#include <memory>

#include "cluster/flight_page.hpp"
#include "fuzz/harness.hpp"
#include "watch/flight_reader.hpp"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using Page = cluster::FlightPage;
    // Where the fields before the tables lie, and the first of each table.
    const auto page = std::make_unique<Page>();
    std::string bytes(reinterpret_cast<const char*>(page.get()), sizeof(Page));
    constexpr std::size_t word = 8;
    for (; size >= 2 + word; data += 2 + word, size -= 2 + word) {
        const std::size_t at = (data[0] + std::size_t{256} * data[1]) * word % (sizeof(Page) / word * word);
        std::memcpy(bytes.data() + at, data + 2, word);
    }
    const std::string path = fuzz::write_file("flight", bytes);
    fuzz::judge(sizeof(Page), [&] {
        constexpr std::size_t most = 16;
        const auto state = watch::read_flight(path, most);
        if (state) fuzz::require(state->operations.size() <= most, "more operations than asked for");
    });
    return 0;
}
