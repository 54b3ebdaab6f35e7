// Tables of measured steps, as lockstep plan --fit takes them.
#include "fuzz/harness.hpp"
#include "plan/measured_table.hpp"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string path = fuzz::write_file("measured.csv", fuzz::text_of(data, size));
    const auto read = [&] { plan::read_measured_table(path); };
    fuzz::judge(size, read, fuzz::listed_layers_floor);
    return 0;
}
