// Lists of hosts, as lockstep doctor --nodes-file takes them.
#include "doctor/host_list.hpp"
#include "fuzz/harness.hpp"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string path = fuzz::write_file("nodes", fuzz::text_of(data, size));
    fuzz::judge(size, [&] { doctor::host_list(doctor::read_host_list(path)); });
    return 0;
}
