// Tables of measured steps, as lockstep plan --fit takes them.
#include "fuzz/harness.hpp"
#include "plan/measured_table.hpp"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string path = fuzz::write_file("measured.csv", fuzz::text_of(data, size));
    // A row may stand for a model of 10,000 layers, whose parameters are listed.
    constexpr std::uint64_t most = std::uint64_t{32} << 20;
    fuzz::judge(
        size, [&] { plan::read_measured_table(path); }, most);
    return 0;
}
