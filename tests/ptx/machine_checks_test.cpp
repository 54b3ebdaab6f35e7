// Each check of the machine: a program with the fault it is for, and one without.
#include "base/error.hpp"
#include "ptx/machine_support.hpp"

using namespace lockstep::ptx;

namespace {

struct Setting {
    Extent grid = {}, block = {64};
    std::uint32_t shared = 4096;
};

// Found under every schedule, at this line of the body, once, and nothing else.
void finds(FindingKind kind, const std::string& body, const Setting& setting = {}) {
    for (const Options& options : schedules()) {
        const Outcome outcome = run_program(program(body), setting.grid, setting.block, setting.shared, options);
        BOOST_REQUIRE_MESSAGE(outcome.findings.size() == 1 && outcome.has(kind),
                              "seed " << options.seed << ": " << outcome.text() << " of " << body);
    }
}
void finds_nothing(const std::string& body, const Setting& setting = {}) {
    for (const Options& options : schedules()) {
        const Outcome outcome = run_program(program(body), setting.grid, setting.block, setting.shared, options);
        BOOST_REQUIRE_MESSAGE(outcome.findings.empty(),
                              "seed " << options.seed << ": " << outcome.text() << " of " << body);
    }
}

// A place of its own in shared memory for each thread (%r10), and its neighbour's in the next warp (%r11) and in the
// same one (%r12).
const std::string places = R"(
    mov.u32 %r9, dynamic;
    shl.b32 %r8, %r0, 2;
    add.s32 %r10, %r9, %r8;
    xor.b32 %r7, %r8, 128;
    add.s32 %r11, %r9, %r7;
    xor.b32 %r7, %r8, 4;
    add.s32 %r12, %r9, %r7;
)";

}  // namespace

BOOST_AUTO_TEST_SUITE(checks)

BOOST_AUTO_TEST_CASE(race_between_warps) {
    const auto body = [](const std::string& between) {
        return places + "st.shared.u32 [%r10], %r0;" + between +
               "ld.shared.u32 %r2, [%r11]; st.global.u32 [%rd2], %r2;";
    };
    finds_nothing(body("bar.sync 0;"));
    for (const Options& options : schedules()) {  // also a read of what was not written, as warps run
        const Outcome outcome = run_program(program(body("bar.warp.sync -1;")), {}, {64}, 4096, options);
        BOOST_TEST(outcome.has(FindingKind::race_shared), outcome.text());
    }
    // A read, and a write that is not in order after it.
    const auto reads_first = [](const std::string& between) {
        return places + "st.shared.u32 [%r10], %r0; bar.sync 0; ld.shared.u32 %r2, [%r11];" + between +
               "st.shared.u32 [%r10], %r2;";
    };
    finds_nothing(reads_first("bar.sync 0;"));
    for (const Options& options : schedules())
        BOOST_TEST(run_program(program(reads_first("")), {}, {64}, 4096, options).has(FindingKind::race_shared));
}

BOOST_AUTO_TEST_CASE(race_within_a_warp) {
    const auto body = [](const std::string& between) {
        return places + "st.shared.u32 [%r10], 1; bar.sync 0; st.shared.u32 [%r10], %r0;" + between +
               "ld.shared.u32 %r2, [%r12];";
    };
    finds(FindingKind::race_shared, body(""));
    finds(FindingKind::race_shared, body("shfl.sync.bfly.b32 %r3, %r0, 1, 31, -1;"));  // orders no memory
    finds_nothing(body("bar.warp.sync -1;"));
    // Among pairs of lanes.
    const std::string pair = "and.b32 %r3, %r1, 30; shl.b32 %r4, 3, %r3;";
    finds_nothing(body(pair + "bar.warp.sync %r4;"));
    finds(FindingKind::race_shared, body("shl.b32 %r4, 1, %r1; bar.warp.sync %r4;"));
}

BOOST_AUTO_TEST_CASE(lanes_that_write_the_same) {
    finds_nothing(places + "st.shared.u32 [%r9], 7;", {.block = {32}});
    finds(FindingKind::race_shared, places + "st.shared.u32 [%r9], %r0;", {.block = {32}});
    finds(FindingKind::race_shared, places + "st.shared.u32 [%r9], 7;");  // of two warps
}

// Two bytes of a word are not the same place.
BOOST_AUTO_TEST_CASE(races_are_of_bytes) {
    const auto body = [](const std::string& width, int shift) {
        return places + "cvt.u16.u32 %h1, %r0; shl.b32 %r2, %r0, " + std::to_string(shift) +
               "; add.s32 %r2, %r2, %r9; st.shared." + width + " [%r2], %h1;";
    };
    finds_nothing(body("u16", 1));
    finds_nothing(body("u8", 0));
    finds(FindingKind::race_shared, places +
                                        "shr.u32 %r2, %r0, 1; shl.b32 %r2, %r2, 1; add.s32 %r2, %r2, %r9;"
                                        "cvt.u16.u32 %h1, %r0; st.shared.u16 [%r2], %h1;");
    // Vectors, then words, then bytes of the same page.
    finds_nothing(places + R"(
        shl.b32 %r2, %r0, 4; add.s32 %r2, %r2, %r9;
        st.shared.v4.u32 [%r2], {%r0, %r0, %r0, %r0};
        st.shared.u32 [%r2+4], %r1;
        cvt.u16.u32 %h1, %r0;
        st.shared.u8 [%r2+7], %h1;
        bar.sync 0;
        xor.b32 %r3, %r0, 40; shl.b32 %r3, %r3, 4; add.s32 %r3, %r3, %r9;
        ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r3];
        bar.sync 0;
        st.shared.u16 [%r2+14], %h1;
    )");
}

BOOST_AUTO_TEST_CASE(race_between_blocks) {
    const auto body = [](const std::string& address) {
        return "mov.u32 %r2, %ctaid.x; mul.wide.u32 %rd5, %r2, 256; add.s64 %rd6, %rd2, %rd5; st.global.u32 [" +
               address + "], %r2;";
    };
    finds_nothing(body("%rd6"), {.grid = {5}});
    finds(FindingKind::race_global, body("%rd2"), {.grid = {5}});
    // A block writes what others read.
    for (const Options& options : schedules())
        BOOST_TEST(run_program(program("ld.global.u32 %r3, [%rd3]; mov.u32 %r2, %ctaid.x; setp.ne.s32 %p0, %r2, 2;"
                                       "@%p0 ret; st.global.u32 [%rd3], %r3;"),
                               {5}, {64}, 0, options)
                       .has(FindingKind::race_global));
}

BOOST_AUTO_TEST_CASE(race_in_global_memory_within_a_block) {
    const auto body = [](const std::string& between) {
        return "xor.b32 %r2, %r0, 32; mul.wide.u32 %rd5, %r2, 4; add.s64 %rd5, %rd0, %rd5; ld.global.u32 %r3, [%rd5];" +
               between + "st.global.u32 [%rd3], %r3;";
    };
    finds_nothing(body("bar.sync 0;"));
    for (const Options& options : schedules())
        BOOST_TEST(run_program(program(body("")), {}, {64}, 0, options).has(FindingKind::race_global));
}

// Barriers of half a block order no more than it.
BOOST_AUTO_TEST_CASE(race_between_halves_with_barriers_of_their_own) {
    const auto body = [](const std::string& place) {
        return places +
               "st.shared.u32 [%r10], %r0; bar.sync 0; shr.u32 %r5, %r0, 6; add.s32 %r5, %r5, 1;"
               "xor.b32 %r7, %r8, " +
               place +
               "; add.s32 %r7, %r7, %r9; ld.shared.u32 %r2, [%r7];"
               "bar.sync %r5, 64; st.shared.u32 [%r10], %r2;";
    };
    finds_nothing(body("128"), {.block = {128}});
    for (const Options& options : schedules())
        BOOST_TEST(run_program(program(body("256")), {}, {128}, 4096, options).has(FindingKind::race_shared));
}

BOOST_AUTO_TEST_CASE(asynchronous_copies_are_waited_for_and_made_visible) {
    const auto body = [](const std::string& wait, const std::string& load) {
        return places + R"(
            shl.b32 %r2, %r0, 4; add.s32 %r3, %r2, %r9; cvt.u64.u32 %rd5, %r2; add.s64 %rd5, %rd0, %rd5;
            cp.async.cg.shared.global [%r3], [%rd5], 16;
            cp.async.commit_group;
            cp.async.cg.shared.global [%r3+2048], [%rd5], 16;
            cp.async.commit_group;
        )" + wait +
               "xor.b32 %r4, %r2, 512; add.s32 %r4, %r4, %r9;" + load;
    };
    const std::string own = "ld.shared.u32 %r5, [%r3];", second = "ld.shared.u32 %r5, [%r3+2048];",
                      other = "ld.shared.u32 %r5, [%r4];";
    finds_nothing(body("cp.async.wait_group 1;", own));
    finds_nothing(body("cp.async.wait_group 0;", second));
    finds_nothing(body("cp.async.wait_group 0; bar.sync 0;", other));
    finds(FindingKind::asynchronous_copy, body("", own));
    finds(FindingKind::asynchronous_copy, body("cp.async.wait_group 1;", second));
    finds(FindingKind::asynchronous_copy, body("cp.async.wait_group 2; bar.sync 0;", other));
    finds(FindingKind::asynchronous_copy, body("bar.sync 0;", other));
    finds(FindingKind::asynchronous_copy, body("", "st.shared.u32 [%r3], %r0;"));
    // Waited for by all before the barrier, but for one warp that is late: no barrier makes its copies visible.
    for (const Options& options : schedules()) {
        const Outcome outcome = run_program(program(body("cp.async.wait_group 0;", other)), {}, {64}, 4096, options);
        BOOST_TEST(outcome.has(FindingKind::asynchronous_copy), outcome.text());
    }
}

// Computing with it is none yet: compilers do where the result does not matter.
BOOST_AUTO_TEST_CASE(never_written) {
    const std::string use = "st.global.u32 [%rd2], %r2;";
    finds_nothing("add.s32 %r2, %r40, 1; mov.u32 %r3, %r2;");
    finds(FindingKind::never_written, "add.s32 %r2, %r40, 1;" + use);
    finds(FindingKind::never_written, "@%p9 add.s32 %r2, %r0, 1;");
    finds(FindingKind::never_written, "setp.eq.s32 %p0, %r40, 1; @%p0 bra there; there:");
    finds(FindingKind::never_written, "cvt.u64.u32 %rd5, %r40; add.s64 %rd5, %rd0, %rd5; ld.global.u32 %r2, [%rd5];");
    finds(FindingKind::never_written, "setp.eq.s32 %p0, %r0, 0; @%p0 mov.u32 %r2, 3;" + use);
    finds_nothing("setp.ge.s32 %p0, %r0, 0; mov.u32 %r41, %r40; selp.b32 %r2, %r0, %r41, %p0;" + use);
    finds_nothing(
        "setp.eq.s32 %p1, %r40, 1; setp.lt.s32 %p0, %r0, 0; and.pred %p0, %p0, %p1; selp.b32 %r2, 1, 2, %p0;" + use);
    finds(FindingKind::never_written,
          "mov.b64 %rd5, {%r0, %r40}; shr.u64 %rd5, %rd5, 32; cvt.u32.u64 %r2, %rd5;" + use);
    finds(FindingKind::never_written, "mov.b64 %rd5, {%r40, %r0}; cvt.u32.u64 %r2, %rd5;" + use);
    finds_nothing("mov.b64 %rd5, {%r0, %r40}; cvt.u32.u64 %r2, %rd5;" + use);
    finds(FindingKind::never_written,
          "setp.eq.s32 %p1, %r40, 1; setp.lt.s32 %p0, %r0, 0; or.pred %p0, %p0, %p1; selp.b32 %r2, 1, 2, %p0;" + use);
    finds(FindingKind::never_written, "mov.b32 %r3, {%h1, %h2}; shfl.sync.idx.b32 %r2, %r3, 0, 31, -1;" + use);
    finds(FindingKind::never_written,
          "setp.ne.s32 %p0, %r1, 5; @%p0 mov.u32 %r3, 1;"
          "shfl.sync.bfly.b32 %r2, %r3, 1, 31, -1;" +
              use);
    finds(FindingKind::never_written, places + "ld.shared.u32 %r2, [%r10];" + use);
    finds(FindingKind::never_written, "ld.global.u32 %r2, [%rd1+8192];" + use);
    // Of bytes.
    const std::string bytes = places +
                              "cvt.u16.u32 %h1, %r0; st.shared.u8 [%r10], %h1; st.shared.u8 [%r10+1], %h1;"
                              "st.shared.u8 [%r10+3], %h1;";
    finds(FindingKind::never_written, bytes + "ld.shared.u32 %r2, [%r10];" + use);
    finds_nothing(bytes + "st.shared.u8 [%r10+2], %h1; ld.shared.u32 %r2, [%r10];" + use);
    finds(FindingKind::never_written, ".local .b8 own[8]; st.local.u32 [own+4], %r0; ld.local.u32 %r2, [own];" + use);
    finds_nothing(".local .b8 own[8]; st.local.u32 [own+4], %r0; ld.local.u32 %r2, [own+4];" + use);
    // What a load takes along without using it, and a store or a copy carries along.
    const std::string store =
        places + "shl.b32 %r8, %r0, 4; add.s32 %r10, %r9, %r8; st.shared.v2.u32 [%r10], {%r0, %r0};";
    const std::string load = ".pragma \"used_bytes_mask 255\"; ld.shared.v4.u32 {%r2, %r3, %r4, %r5}, [%r10];";
    finds(FindingKind::never_written, store + "ld.shared.v4.u32 {%r4, %r5, %r2, %r3}, [%r10];" + use);
    finds_nothing(store + load + use);
    finds(FindingKind::never_written, store + load + "st.global.u32 [%rd2], %r4;");
    finds(FindingKind::never_written, store + "st.shared.u32 [%r10], %r40; ld.shared.u32 %r2, [%r10];" + use);
    const std::string copy = places +
                             "shl.b32 %r2, %r0, 4; add.s32 %r3, %r9, %r2; cvt.u64.u32 %rd5, %r2;"
                             "add.s64 %rd5, %rd1, %rd5; cp.async.cg.shared.global [%r3], [%rd5+8192], 16;"
                             "cp.async.wait_all; ld.shared.u32 %r2, [%r3];";
    finds_nothing(copy);
    finds(FindingKind::never_written, copy + use);
}

// Of a product, the rows and columns that are made of it.
BOOST_AUTO_TEST_CASE(never_written_elements_of_matrices) {
    const auto body = [](const std::string& lane, const std::string& unwritten, const std::string& used) {
        std::string result = "setp.ne.s32 %p0, %r1, " + lane + "; mov.f32 %f0, 0f00000000;";
        for (const char* place : {"%r2", "%r3", "%r4", "%r5", "%r6", "%r7"})
            result += (place == unwritten ? "@%p0 mov.u32 " : "mov.u32 ") + std::string(place) + ", 0;";
        return result +
               "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, {%r2, %r3, %r4, %r5},"
               "{%r6, %r7}, {%f0, %f0, %f0, %f0}; setp.eq.s32 %p1, %r1, 22; @%p1 st.global.f32 [%rd2], " +
               used + ";";
    };
    // Lane 22 has rows 5 and 13, columns 4 and 5.
    finds(FindingKind::never_written, body("20", "%r2", "%f1"));
    finds(FindingKind::never_written, body("23", "%r4", "%f2"));
    finds_nothing(body("20", "%r2", "%f3"));
    finds(FindingKind::never_written, body("21", "%r5", "%f3"));
    finds_nothing(body("24", "%r2", "%f1"));
    finds(FindingKind::never_written, body("16", "%r6", "%f1"));
    finds_nothing(body("16", "%r6", "%f2"));
    finds(FindingKind::never_written, body("21", "%r7", "%f4"));
}

BOOST_AUTO_TEST_CASE(out_of_bounds) {
    finds_nothing("add.s64 %rd5, %rd0, 32764; ld.global.u32 %r2, [%rd5];");
    finds(FindingKind::out_of_bounds, "mov.u64 %rd5, 4096; ld.global.u32 %r2, [%rd5];");
    finds(FindingKind::out_of_bounds, "mov.u64 %rd5, 4096; st.global.u32 [%rd5], %r0;");
    finds(FindingKind::out_of_bounds, places + "st.shared.u32 [%r10+4096], %r0;");
    finds(FindingKind::out_of_bounds, places + "st.shared.u32 [%r10+3844], %r0;");  // the last thread's only
    finds_nothing(places + "st.shared.u32 [%r10+3840], %r0;");
    finds(FindingKind::out_of_bounds, ".local .b8 own[8]; st.local.u32 [own+8], %r0;");
    finds(FindingKind::out_of_bounds, places + "mov.u64 %rd5, 4096; cp.async.cg.shared.global [dynamic], [%rd5], 16;");
}

BOOST_AUTO_TEST_CASE(misaligned) {
    finds(FindingKind::misaligned, "ld.global.u32 %r2, [%rd3+2];");
    finds(FindingKind::misaligned, "ld.global.v2.u32 {%r2, %r3}, [%rd0+4];");
    finds_nothing("ld.global.v2.u32 {%r2, %r3}, [%rd0+8];");
    finds(FindingKind::misaligned, places + "st.shared.v4.u32 [dynamic+8], {%r0, %r0, %r0, %r0};");
    finds(FindingKind::misaligned, "mov.u16 %h1, 1; st.shared.u16 [dynamic+1], %h1;");
    finds(FindingKind::misaligned, "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [dynamic+8];");
    finds(FindingKind::misaligned, "cp.async.cg.shared.global [dynamic], [%rd0+8], 16;");
}

BOOST_AUTO_TEST_CASE(barriers) {
    finds_nothing("setp.lt.u32 %p0, %r0, 32; @%p0 bra there; bar.sync 0; bra.uni join; there: bar.sync 0; join:");
    // Not reached by the other warp, which has ended, or by half of each.
    finds(FindingKind::barrier, "setp.lt.u32 %p0, %r0, 32; @%p0 ret; bar.sync 0;");
    finds(FindingKind::barrier, "setp.lt.u32 %p0, %r1, 16; @%p0 bra there; bar.sync 0; there: bar.warp.sync -1;");
    finds(FindingKind::barrier, "setp.lt.u32 %p0, %r1, 16; @%p0 ret; bar.sync 0;");
    finds(FindingKind::barrier,
          "setp.lt.u32 %p0, %r1, 16; @%p0 bra there; bar.sync 0; bra.uni join; there: bar.sync 0; join:");
    // By a wrong number.
    finds(FindingKind::barrier, "bar.sync 1, 48;");
    finds(FindingKind::barrier, "bar.sync 1, 96;");
    finds(FindingKind::barrier,
          "setp.lt.u32 %p0, %r0, 32; selp.b32 %r2, 32, 64, %p0; bar.sync 1, %r2; bar.sync 1, 64;");
    finds(FindingKind::barrier, "setp.lt.u32 %p0, %r0, 32; selp.b32 %r2, 1, 2, %p0; bar.sync %r2, 64;");
    finds(FindingKind::barrier, "bar.sync 16;");
}

BOOST_AUTO_TEST_CASE(collectives) {
    // At different places, though with the same mask.
    finds(FindingKind::collective, R"(
        setp.lt.u32 %p0, %r1, 16;
        @%p0 bra there;
        shfl.sync.bfly.b32 %r2, %r0, 1, 31, -1;
        bra.uni join;
    there:
        shfl.sync.bfly.b32 %r2, %r0, 1, 31, -1;
    join:
    )",
          {.block = {32}});
    finds(FindingKind::collective,
          "setp.lt.u32 %p0, %r1, 16; @%p0 bra there; bar.warp.sync -1; there: bar.warp.sync 0xffff;", {.block = {32}});
    finds(FindingKind::collective, "bar.warp.sync 0xffff;", {.block = {32}});  // does not name who executes it
    finds(FindingKind::collective,
          "setp.lt.u32 %p0, %r1, 16; @%p0 bra there; shfl.sync.bfly.b32 %r2, %r0, 16, 31, "
          "0xffff0000; there:",
          {.block = {32}});  // asks a lane outside
    finds(FindingKind::collective,
          "setp.lt.u32 %p0, %r1, 16; @%p0 ret; movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r0;", {.block = {32}});
    finds(FindingKind::collective, "movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r0;", {.block = {40}});
    finds_nothing("setp.lt.u32 %p0, %r1, 16; @%p0 ret; bar.warp.sync -1; shfl.sync.bfly.b32 %r2, %r0, 1, 31, -1;",
                  {.block = {32}});
    finds(FindingKind::collective, "setp.lt.u32 %p0, %r1, 16; @%p0 bra.uni there; there:", {.block = {32}});
}

BOOST_AUTO_TEST_CASE(resources) {
    const auto found = [](std::uint32_t threads, std::uint32_t shared, std::uint32_t most) {
        Options options;
        options.most_shared_bytes = most;
        return run_program(program("", ".maxntid 128, 1, 1"), {}, {threads}, shared, options)
            .has(FindingKind::resources);
    };
    BOOST_TEST(!found(128, 166912 - 1024, 166912));
    BOOST_TEST(found(128, 166912 - 1023, 166912));
    BOOST_TEST(!found(128, 200000, 232448));
    BOOST_TEST(found(129, 0, 232448));
    BOOST_TEST(run_program(program(""), {}, {1025}, 0).has(FindingKind::resources));
}

BOOST_AUTO_TEST_CASE(a_finding_says_where) {
    const Outcome outcome = run_program(program(".loc 2 77 5, function_name $L__info, inlined_at 1 5 5\n"
                                                "setp.eq.s32 %p0, %r0, 37;\n@%p0 ld.global.u32 %r2, [%rd3+1];") +
                                            ".file 1 \"/a/kernel.cu\"\n.file 2 \"/a/pack.hpp\"\n",
                                        {}, {64});
    BOOST_REQUIRE(outcome.findings.size() == 1);
    const Finding& finding = outcome.findings[0];
    BOOST_TEST(finding.kernel == "kernel");
    BOOST_TEST(finding.file == "/a/pack.hpp");
    BOOST_TEST(finding.line == 77);
    BOOST_TEST(finding.warp == 1);
    BOOST_TEST(finding.lane == 5);
    const std::string text = describe(finding);
    BOOST_TEST(text.find("misaligned: kernel: /a/pack.hpp:77 (PTX line 25): block (0, 0, 0), warp 1, lane 5:") == 0,
               text);
}

// Allocations come and go, and a copy by the host writes.
BOOST_AUTO_TEST_CASE(the_host_tells_what_memory_there_is) {
    const Module module(program("ld.global.u32 %r2, [%rd3]; setp.eq.s32 %p0, %r2, 0; @%p0 ret;"));
    std::vector<std::uint32_t> values(64);
    const void* const pointers[] = {values.data(), values.data()};
    GlobalMemory memory;
    const auto kind = [&] {
        const auto findings = run(*module.kernels()[0], {}, {32}, 0, std::as_bytes(std::span(pointers)), memory, {});
        return findings.empty() ? -1 : static_cast<int>(findings[0].kind);
    };
    BOOST_TEST(kind() == static_cast<int>(FindingKind::out_of_bounds));
    memory.add(values.data(), 256);
    BOOST_TEST(kind() == static_cast<int>(FindingKind::never_written));
    memory.mark_written(values.data(), 124);
    BOOST_TEST(kind() == static_cast<int>(FindingKind::never_written));
    memory.mark_written(values.data() + 31, 4);
    BOOST_TEST(kind() == -1);
    memory.mark_unwritten(values.data() + 7, 1);
    BOOST_TEST(kind() == static_cast<int>(FindingKind::never_written));
    memory.remove(values.data());
    BOOST_TEST(kind() == static_cast<int>(FindingKind::out_of_bounds));
    BOOST_CHECK_THROW(memory.mark_written(values.data(), 4), lockstep::Error);
}

BOOST_AUTO_TEST_SUITE_END()
