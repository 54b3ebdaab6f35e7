#define BOOST_TEST_MODULE cuda_device
#include <cctype>
#include <functional>

#include "device/cuda/context.hpp"
#include "device/sync.hpp"
#include "operations/support.hpp"

using namespace lockstep;
using namespace lockstep::operation_tests;
using kernels::Accumulate;
using kernels::Transpose;

namespace {

constexpr std::size_t staging_bytes = std::size_t{4} << 20;  // of one of the four buffers of the ring

std::vector<char> pattern(std::size_t bytes, std::uint64_t seed) {
    std::vector<char> data(bytes);
    std::uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    for (char& byte : data) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        byte = static_cast<char>(state >> 56);
    }
    return data;
}

std::vector<char> downloaded(const Tensor& tensor) {
    std::vector<char> data(tensor.bytes());
    backend().download(data.data(), tensor);
    return data;
}

bool says(const Error& error, const std::string& words) {
    return std::string(error.what()).find(words) != std::string::npos;
}

// Sets the sync mode, and sets it back.
class Mode {
  public:
    explicit Mode(SyncMode mode) : before_(sync_mode()) { set_sync_mode(mode); }
    ~Mode() { set_sync_mode(before_); }
    Mode(const Mode&) = delete;
    Mode& operator=(const Mode&) = delete;

  private:
    SyncMode before_;
};

// Tensors for a few operations of several kinds: a product, elementwise work, sums that take working memory.
struct Work {
    OnDevice a{Type::fp32, {33, 17}}, b{Type::fp32, {17, 31}}, c{Type::fp32, {33, 31}}, sum{Type::fp64, {2}};

    void upload(const std::string& purpose) {
        a.set(random_rounded(Type::fp32, 33 * 17, purpose + "a"));
        b.set(random_rounded(Type::fp32, 17 * 31, purpose + "b"));
        c.set(random_rounded(Type::fp32, 33 * 31, purpose + "c"));
    }
    void issue() {
        backend().product(c, a, Transpose::no, b, Transpose::no, Accumulate::yes);
        backend().scale(c, 0.5f);
        backend().sum_of_squares(sum, c, Accumulate::no);
        backend().add(c, c);
    }
    std::vector<std::vector<char>> results() const { return {c.bytes(), sum.bytes()}; }
};

// Working memory of at least `bytes`: the bias of a 16-bit layer with fp32 results is converted there.
struct NeedsScratch {
    explicit NeedsScratch(std::size_t bytes)
        : width(static_cast<std::int64_t>(bytes / 4)),
          y(Type::fp32, {1, width}),
          x(Type::bf16, {1, 0}),
          weight(Type::bf16, {width, 0}),
          bias(Type::bf16, {width}) {
        backend().fill(bias, 3.0f);
    }
    void issue() { backend().linear_forward(y, x, weight, bias, {}); }

    std::int64_t width;
    OnDevice y, x, weight, bias;
};

}  // namespace

BOOST_AUTO_TEST_CASE(what_is_uploaded_is_downloaded_whatever_its_size) {
    for (const std::size_t bytes :
         {std::size_t{2}, std::size_t{62}, std::size_t{66}, std::size_t{4098}, staging_bytes - 2, staging_bytes,
          staging_bytes + 2, 4 * staging_bytes + 2, 5 * staging_bytes + staging_bytes / 2}) {
        const OnDevice tensor(Type::bf16, {static_cast<std::int64_t>(bytes / 2)});
        std::vector<char> data = pattern(bytes, bytes);
        const std::vector<char> expected = data;
        backend().upload(tensor, data.data());
        std::fill(data.begin(), data.end(), char{0});  // the source may be reused
        BOOST_CHECK_MESSAGE(downloaded(tensor) == expected, bytes << " bytes");
    }
}

BOOST_AUTO_TEST_CASE(many_small_uploads_pass_the_ring_several_times) {
    constexpr std::size_t bytes = 100'002, count = 400;  // 40 MB
    const OnDevice tensor(Type::bf16, {static_cast<std::int64_t>(count), static_cast<std::int64_t>(bytes / 2)});
    std::vector<char> data;
    for (std::size_t i = 0; i < count; ++i) {
        data = pattern(bytes, i);
        backend().upload(tensor.tensor().slice(static_cast<std::int64_t>(i), 1), data.data());
    }
    const std::vector<char> all = tensor.bytes();
    for (std::size_t i = 0; i < count; ++i) {
        const auto from = all.begin() + static_cast<std::ptrdiff_t>(i * bytes);
        BOOST_CHECK_MESSAGE(std::vector<char>(from, from + bytes) == pattern(bytes, i), "upload " << i);
    }
}

BOOST_AUTO_TEST_CASE(uploads_take_their_place_among_operations) {
    OnDevice x(Type::fp32, {3}), y(Type::fp32, {3});
    x.set({1, 2, 3});
    backend().copy(y, x);
    x.set({10, 20, 30});
    backend().add(y, x);
    x.set({0, 0, 0});
    BOOST_TEST(y.values() == (Values{11, 22, 33}));
}

BOOST_AUTO_TEST_CASE(values_may_be_read_late_and_in_any_order) {
    for_each_order([] {
        OnDevice x(Type::fp64, {3});
        std::vector<std::unique_ptr<kernels::Later>> later;
        for (int i = 0; i < 100; ++i) {
            x.set({1.0 * i, -2.0 * i, 0.1 * i});
            later.push_back(backend().read_later(x));
        }
        later[8].reset();  // nobody wants it
        later[50].reset();
        for (int i = 99; i >= 0; i -= 2) BOOST_TEST(later[static_cast<std::size_t>(i)]->get()[0] == i);
        x.set({-1, -1, -1});
        const auto last = backend().read_later(x);  // into memory that was used before
        for (int i = 0; i < 100; ++i) {
            if (i == 8 || i == 50) continue;
            const Values expected = {1.0 * i, -2.0 * i, 0.1 * i};
            BOOST_TEST(later[static_cast<std::size_t>(i)]->get() == expected);
        }
        BOOST_TEST(last->get() == Values(3, -1.0));
        return std::vector<std::vector<char>>{};
    });
}

BOOST_AUTO_TEST_CASE(values_read_late_are_those_of_their_time) {
    constexpr std::size_t count = 1000;  // more than the smallest piece of pinned memory holds
    OnDevice x(Type::fp64, {count}), total(Type::fp64, {1}), terms(Type::fp32, {5});
    Values many(count);
    for (std::size_t i = 0; i < count; ++i) many[i] = static_cast<double>(i) / 3;
    x.set(many);
    const auto before = backend().read_later(x);
    x.set(Values(count, 0.0));
    terms.set({1, 2, 3, 4, 5});
    backend().sum(total, terms, Accumulate::no);
    const auto sum = backend().read_later(total);
    backend().sum(total, terms, Accumulate::yes);
    BOOST_TEST(before->get() == many);
    BOOST_TEST(sum->get() == Values(1, 15.0));
    BOOST_TEST(total.values() == Values(1, 30.0));
}

BOOST_AUTO_TEST_CASE(a_recording_does_what_its_operations_do) {
    for (const SyncMode mode : {SyncMode::async, SyncMode::launch}) {
        const Mode set(mode);
        for_each_order([] {
            Work work;
            work.upload("first");
            work.issue();
            const auto direct = work.results();
            work.upload("second");
            work.issue();
            const auto second = work.results();

            work.upload("first");
            const std::vector<char> before = work.c.bytes();
            const auto recording = backend().record([&] { work.issue(); });
            BOOST_REQUIRE(recording != nullptr);
            BOOST_CHECK_MESSAGE(work.c.bytes() == before, "what is recorded is not run");
            recording->run();
            BOOST_CHECK_MESSAGE(work.results() == direct, "first run");
            work.upload("second");
            recording->run();
            BOOST_CHECK_MESSAGE(work.results() == second, "second run");
            recording->run();
            recording->run();
            auto results = work.results();
            work.upload("second");
            for (int i = 0; i < 3; ++i) work.issue();
            BOOST_CHECK_MESSAGE(work.results() == results, "three runs in a row");
            return results;
        });
    }
}

BOOST_AUTO_TEST_CASE(an_error_while_recording_comes_through_and_leaves_the_gpu_usable) {
    Work work;
    work.upload("first");
    work.issue();
    const auto expected = work.results();
    work.upload("first");
    const auto fails = [&] {
        const auto recording = backend().record([&] {
            work.issue();
            throw usage_error("in the middle");
        });
    };
    BOOST_CHECK_EXCEPTION(fails(), Error, [](const Error& error) { return says(error, "in the middle"); });
    work.issue();
    BOOST_TEST((work.results() == expected));
    work.upload("first");
    const auto recording = backend().record([&] { work.issue(); });
    recording->run();
    BOOST_TEST((work.results() == expected));
}

BOOST_AUTO_TEST_CASE(working_memory_grows_and_recordings_stay_valid) {
    Work work;
    work.upload("first");
    work.issue();
    const auto expected = work.results();
    const auto recording = backend().record([&] { work.issue(); });
    NeedsScratch larger(std::size_t{17} << 20);
    larger.issue();
    BOOST_TEST(larger.y.values() == Values(static_cast<std::size_t>(larger.width), 3.0));
    work.upload("first");
    recording->run();
    BOOST_TEST((work.results() == expected));
    work.upload("first");
    work.issue();  // now in the larger working memory
    BOOST_TEST((work.results() == expected));
}

BOOST_AUTO_TEST_CASE(working_memory_does_not_grow_in_a_recording) {
    NeedsScratch largest(std::size_t{40} << 20);
    const auto fails = [&] { const auto recording = backend().record([&] { largest.issue(); }); };
    BOOST_CHECK_EXCEPTION(fails(), Error, [](const Error& error) {
        return error.code() == ExitCode::fault && says(error, "before it is captured");
    });
    largest.issue();
    const auto recording = backend().record([&] { largest.issue(); });
    backend().fill(largest.bias, 4.0f);
    recording->run();
    BOOST_TEST(largest.y.values() == Values(static_cast<std::size_t>(largest.width), 4.0));
}

BOOST_AUTO_TEST_CASE(memory_is_zeroed_and_aligned) {
    for (int round = 0; round < 3; ++round) {
        Arena arena(backend().device(), 1 << 20, "a test");
        const Tensor first = arena.allocate(Type::bf16, {3}), second = arena.allocate(Type::fp32, {100'000});
        for (const Tensor& tensor : {first, second})
            BOOST_TEST(reinterpret_cast<std::uintptr_t>(tensor.data()) % Arena::device_alignment == 0u);
        BOOST_TEST((downloaded(second) == std::vector<char>(second.bytes(), 0)));
        backend().fill(second, 7.0f);  // what the next one may be given
        backend().synchronize();
    }
}

BOOST_AUTO_TEST_CASE(too_much_memory_is_a_usage_error_that_says_what_to_lower) {
    const auto fails = [] { const Arena arena(backend().device(), std::size_t{1} << 50, "the activations"); };
    BOOST_CHECK_EXCEPTION(fails(), Error, [](const Error& error) {
        return error.code() == ExitCode::usage && says(error, "the activations") && says(error, "GPU 0") &&
               says(error, "1.00 PiB") && says(error, " free") && says(error, "batch.micro");
    });
    OnDevice x(Type::fp32, {1});  // nothing of it is left behind
    x.set({2});
    BOOST_TEST(x.values() == Values(1, 2.0));
}

BOOST_AUTO_TEST_CASE(gpus_are_found_and_described) {
    const Gpus gpus = find_gpus();
    BOOST_REQUIRE(!gpus.list.empty());
    BOOST_TEST(gpus.why_none.empty());
    for (std::size_t i = 0; i < gpus.list.size(); ++i) {
        const Gpu& gpu = gpus.list[i];
        BOOST_TEST(gpu.index == static_cast<int>(i));
        BOOST_TEST(!gpu.name.empty());
        BOOST_TEST(gpu.memory > 0u);
        BOOST_TEST(gpu.multiprocessors > 0);
        // 0000:1b:00.0
        BOOST_REQUIRE_EQUAL(gpu.bus.size(), 12u);
        BOOST_TEST(gpu.bus[4] == ':');
        BOOST_TEST(gpu.bus[10] == '.');
        for (const char letter : gpu.bus) BOOST_TEST(!std::isupper(static_cast<unsigned char>(letter)));
    }
}

BOOST_AUTO_TEST_CASE(a_gpu_that_is_not_there_is_a_usage_error) {
    const int count = static_cast<int>(find_gpus().list.size());
    for (const int index : {-1, count, 1000})
        BOOST_CHECK_EXCEPTION(open_gpu(index), Error, [&](const Error& error) {
            return error.code() == ExitCode::usage && says(error, fmt::format("GPU {} cannot be used", index));
        });
}

BOOST_AUTO_TEST_CASE(free_memory_falls_by_what_is_taken) {
    const auto context = open_gpu(0);
    constexpr std::size_t taken = std::size_t{64} << 20;
    const std::uint64_t before = free_gpu_memory(*context);
    const Arena arena(context->device(), taken, "a test");
    BOOST_TEST(free_gpu_memory(*context) <= before - taken);
}

BOOST_AUTO_TEST_CASE(one_stream_waits_for_the_other_and_the_host_for_both) {
    for_each_order([] {
        const auto context = open_gpu(0);
        Arena arena(context->device(), 1 << 16, "a test");
        const Tensor x = arena.allocate(Type::fp32, {1000}), y = arena.allocate(Type::fp32, {1000}),
                     z = arena.allocate(Type::fp32, {1000});
        const auto move = [&](const Tensor& to, const Tensor& from, cudaStream_t stream) {
            check_cuda(cudaMemcpyAsync(to.data(), from.data(), from.bytes(), cudaMemcpyDeviceToDevice, stream),
                       "a copy");
        };
        for (std::uint64_t round = 0; round < 50; ++round) {  // more than there are events
            const std::vector<char> data = pattern(x.bytes(), round);
            context->upload(x.data(), data.data(), x.bytes());
            context->order(context->compute(), context->communication());
            move(y, x, context->communication());
            context->order(context->communication(), context->compute());
            move(z, y, context->compute());
            std::vector<char> result(z.bytes());
            context->download(result.data(), z.data(), z.bytes());
            BOOST_CHECK_MESSAGE(result == data, "round " << round);
        }
        check_cuda(cudaMemsetAsync(x.data(), 1, x.bytes(), context->communication()), "a fill");
        context->synchronize();
        std::vector<char> result(x.bytes());
        context->download(result.data(), x.data(), x.bytes());
        BOOST_TEST((result == std::vector<char>(x.bytes(), 1)));
        return std::vector<std::vector<char>>{};
    });
}

BOOST_AUTO_TEST_CASE(ranges_nest) {
    push_range("step");
    push_range("forward");
    pop_range();
    pop_range();
#if defined(LOCKSTEP_CUDA_EMULATION)
    BOOST_TEST((emulation::take_nvtx_names() == std::vector<std::string>{"step", "forward"}));
#endif
}

// Also with work still on its way.
BOOST_AUTO_TEST_CASE(everything_is_given_back) {
#if defined(LOCKSTEP_CUDA_EMULATION)
    backend().synchronize();
    const std::size_t before = emulation::live_allocations();
#endif
    {
        std::unique_ptr<kernels::Later> later;
        std::unique_ptr<kernels::Recording> recording;
        {
            auto context = open_gpu(0);
            const auto own = kernels::make_cuda_backend(context);
            Arena arena(context->device(), 1 << 16, "a test");
            context.reset();
            const Tensor x = arena.allocate(Type::fp64, {4});
            const Values data = {1, 2, 3, 4};
            own->upload(x, data.data());
            later = own->read_later(x);
            own->fill(x, 0.0f);
            recording = own->record([&] { own->fill(x, 0.0f); });
            own->synchronize();
        }
        BOOST_TEST(later->get() == (Values{1, 2, 3, 4}));
    }
#if defined(LOCKSTEP_CUDA_EMULATION)
    BOOST_TEST(emulation::live_allocations() == before);
#endif
}
