#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include <zlib.h>

#include <dynapipe/ext/csv_profile.hpp>
#include <dynapipe/ext/files.hpp>

using namespace dynapipe;

namespace {

const std::string time_header = "tp,recompute,layer,pass,enc_seqlen,dec_seqlen,mbs,time_ms,tokens_per_ms\n";
const std::string memory_header =
    "tp,recompute,layer,enc_seqlen,dec_seqlen,mbs,stored_activation_mb,peak_activation_mb\n";
const std::string state_header = "tp,recompute,layer,param_mb\n";

/// A small decoder-only measurement: two degrees, two recomputation modes.
const std::string gpt_time = time_header +
                             "1,full,encoder,forward,16,0,1,1.5,9\n"
                             "1,full,encoder,backward,16,0,1,3.42,9\n"
                             "1,full,encoder,forward,32,0,2,2.5,9\n"
                             "1,full,encoder,backward,32,0,2,4.0000005,9\n"
                             "1,none,encoder,forward,16,0,1,1.25,9\n"
                             "1,none,encoder,backward,16,0,1,2,9\n"
                             "1,none,encoder,forward,32,0,2,2.25,9\n"
                             "1,none,encoder,backward,32,0,2,3.0000004,9\n"
                             "1,none,postprocess,forward,16,0,1,0.75,9\n"
                             "1,none,postprocess,backward,16,0,1,0.8,9\n"
                             "1,none,postprocess,forward,32,0,2,0.9,9\n"
                             "1,none,postprocess,backward,32,0,2,1e0,9\n"
                             "4,none,encoder,forward,16,0,1,1,9\n"
                             "4,none,encoder,backward,16,0,1,1,9\n";
const std::string gpt_memory = memory_header +
                               "1,full,encoder,16,0,1,0.32,5.87\n"
                               "1,full,encoder,32,0,2,0.49,11.31\n"
                               "1,none,encoder,16,0,1,2.47,10.89\n"
                               "1,none,encoder,32,0,2,15786.0,15785.5\n"
                               "4,none,encoder,16,0,1,2.47,10.89\n";
const std::string gpt_state = state_header +
                              "1,full,embedding,417.80958904109565\n"
                              "1,full,encoder,402.7700000000003\n"
                              "1,none,embedding,417.6559722222221\n"
                              "1,none,encoder,402.77055555555586\n"
                              "1,selective,embedding,417.80958904109576\n"
                              "4,none,encoder,100\n";

std::string gzipped(const std::string& text) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(deflateBound(&stream, text.size()), '\0');
  std::string input = text;
  stream.next_in = reinterpret_cast<Bytef*>(input.data());
  stream.avail_in = static_cast<uInt>(input.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

/// A folder of its own with the three tables of "gpu", gone afterwards.
struct tables_folder {
  std::filesystem::path path;

  explicit tables_folder(const std::string& time = gpt_time, const std::string& memory = gpt_memory,
                         const std::string& state = gpt_state) {
    std::random_device random;
    path = std::filesystem::temp_directory_path() / ("dynapipe-tables-" + std::to_string(random()));
    std::filesystem::create_directory(path);
    write_file(path / "gpu_time.csv", time);
    write_file(path / "gpu_memory.csv", memory);
    write_file(path / "gpu_model_state.csv", state);
  }
  tables_folder(const tables_folder&) = delete;
  tables_folder& operator=(const tables_folder&) = delete;
  ~tables_folder() { std::filesystem::remove_all(path); }

  [[nodiscard]] std::string at(const char* name) const { return (path / name).string(); }
  [[nodiscard]] std::string time() const { return at("gpu_time.csv"); }
};

/// What reading complains of, with "DIR/" for the folder; "" if it does not.
std::string complaint(const tables_folder& folder, std::int64_t tp = 1, const char* file = "gpu_time.csv") {
  try {
    static_cast<void>(load_profile_csv(folder.at(file), tp));
  } catch (const error& e) {
    std::string text = e.what();
    const std::string dir = folder.path.string();
    for (std::size_t at = text.find(dir); at != std::string::npos; at = text.find(dir))
      text.replace(at, dir.size(), "DIR");
    return text;
  }
  return "";
}

std::string with(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}
std::string with_time(std::string_view from, std::string_view to) {
  return complaint(tables_folder{with(gpt_time, from, to)});
}
std::string with_memory(std::string_view from, std::string_view to) {
  return complaint(tables_folder{gpt_time, with(gpt_memory, from, to)});
}

profile_point point(layer_kind kind, recompute_mode recompute, shape s, std::int64_t forward, std::int64_t backward,
                    std::int64_t stored = 0, std::int64_t forward_peak = 0, std::int64_t backward_peak = 0) {
  return {.kind = kind,
          .recompute = recompute,
          .padded = s,
          .forward = nanoseconds{forward},
          .backward = nanoseconds{backward},
          .stored = bytes{stored},
          .forward_peak = bytes{forward_peak},
          .backward_peak = bytes{backward_peak}};
}

/// An encoder-decoder's tables: two lengths of each, `scatter` on the second repeat of encoder and head.
struct t5_tables {
  std::string time = time_header;
  std::string memory = memory_header;
  std::string state = state_header + "2,none,embedding,1\n2,none,encoder,2\n2,none,decoder,3\n2,none,postprocess,0.5\n";

  t5_tables() {
    const auto times = [&](const std::string& layer, const std::string& lengths, const char* forward,
                           const char* backward) {
      time += "2,none," + layer + ",forward," + lengths + ",1," + forward + ",1\n";
      time += "2,none," + layer + ",backward," + lengths + ",1," + backward + ",1\n";
    };
    times("encoder", "16,8", "1", "2");
    times("encoder", "16,4", "3", "5");
    times("encoder", "16,2", "1.5", "2.5");
    times("encoder", "32,0", "2", "3");
    times("encoder", "32,0", "2.000001", "9");
    times("decoder", "16,8", "4", "5");
    times("decoder", "32,8", "6", "7");
    times("postprocess", "16,8", "0.5", "0.5");
    times("postprocess", "32,8", "0.9", "0.6");
    times("postprocess", "4,0", "0.25", "0.25");
    memory +=
        "2,none,encoder,16,8,1,10,30\n"
        "2,none,encoder,16,4,1,20,40\n"
        "2,none,encoder,32,0,1,50,60\n"
        "2,none,decoder,16,8,1,7,9\n"
        "2,none,decoder,32,8,1,8,8\n"
        "2,none,postprocess,4,0,1,1,3\n";
  }
};

}  // namespace

TEST_CASE("decimal numbers become millionths exactly, halves rounded up") {
  using csv_detail::millionths;
  CHECK(millionths("0") == 0);
  CHECK(millionths("1") == 1'000'000);
  CHECK(millionths("3.42") == 3'420'000);
  CHECK(millionths("402.7700000000003") == 402'770'000);
  CHECK(millionths("417.65597222") == 417'655'972);
  CHECK(millionths("0.0000005") == 1);
  CHECK(millionths("0.00000049999999999999999999999999") == 0);
  CHECK(millionths("1.0000015") == 1'000'002);
  CHECK(millionths("2.675") == 2'675'000);
  CHECK(millionths("0.1234565") == 123'457);
  CHECK(millionths("000012.50") == 12'500'000);
  CHECK(millionths("9999999.9999995") == 10'000'000'000'000);
  CHECK(millionths("1e-05") == 10);
  CHECK(millionths("1.5E+3") == 1'500'000'000);
  CHECK(millionths("2.5e3") == 2'500'000'000);
  CHECK(millionths("5e-7") == 1);
  CHECK(millionths("5e-8") == 0);
  CHECK(millionths("0e999") == 0);
  CHECK(millionths("1e-2000000000") == 0);
  CHECK(millionths("999999999999.9999994") == 999'999'999'999'999'999);
  CHECK(millionths("999999999999.9999995") == 1'000'000'000'000'000'000);
  for (const char* text :
       {"",   ".",   "5.",    ".5",    "-1", "+1", "1,5",           "1.2.3",         "nan",  "inf",   "0x10",
        "1e", "1e+", "1e+-5", "1e5.0", " 1", "1 ", "1e99999999999", "1000000000000", "1e12", "1e400", "e5"}) {
    CAPTURE(text);
    CHECK(millionths(text) == -1);
  }
}

TEST_CASE("tables of a decoder-only model become a profile") {
  const tables_folder folder;
  const profile p = load_profile_csv(folder.time(), 1, presets::gpt_6_7b());
  CHECK(p.device == "gpu");
  CHECK(p.type == dtype::fp16);
  CHECK(p.tensor_parallel == 1);
  CHECK(p.hidden == 4096);
  CHECK(p.heads == 32);
  CHECK(p.kv_heads == 32);
  CHECK(p.ffn == 16'384);
  // The median of three, and the mean of two: 402.77 and 402.770556.
  CHECK(p.parameters == std::array<bytes, 5>{bytes{417'809'589}, bytes{0}, bytes{402'770'278}, bytes{0}, bytes{0}});
  using enum layer_kind;
  using enum recompute_mode;
  CHECK(p.points == std::vector<profile_point>{
                        point(decoder, none, {1, 16, 0}, 1'250'000, 2'000'000, 2'470'000, 10'890'000, 8'420'000),
                        point(decoder, none, {2, 32, 0}, 2'250'000, 3'000'000, 15'786'000'000, 15'786'000'000, 0),
                        point(decoder, full, {1, 16, 0}, 1'500'000, 3'420'000, 320'000, 5'870'000, 5'550'000),
                        point(decoder, full, {2, 32, 0}, 2'500'000, 4'000'001, 490'000, 11'310'000, 10'820'000),
                        point(head, none, {1, 16, 0}, 750'000, 800'000),
                        point(head, none, {2, 32, 0}, 900'000, 1'000'000)});
  const profile unknown = load_profile_csv(folder.time(), 1);
  CHECK(unknown.hidden == 0);
  CHECK(unknown.heads == 0);
  CHECK(unknown.points == p.points);
}

TEST_CASE("tables of an encoder-decoder: repeats of encoder and head are their median") {
  const t5_tables t5;
  const tables_folder folder{t5.time, t5.memory, t5.state};
  const profile p = load_profile_csv(folder.time(), 2, presets::t5_11b());
  CHECK(p.parameters ==
        std::array<bytes, 5>{bytes{1'000'000}, bytes{2'000'000}, bytes{0}, bytes{3'000'000}, bytes{500'000}});
  using enum layer_kind;
  using enum recompute_mode;
  CHECK(p.points == std::vector<profile_point>{
                        point(encoder, none, {1, 16, 0}, 1'500'000, 2'500'000, 15'000'000, 35'000'000, 20'000'000),
                        point(encoder, none, {1, 32, 0}, 2'000'001, 6'000'000, 50'000'000, 60'000'000, 10'000'000),
                        point(cross_decoder, none, {1, 16, 8}, 4'000'000, 5'000'000, 7'000'000, 9'000'000, 2'000'000),
                        point(cross_decoder, none, {1, 32, 8}, 6'000'000, 7'000'000, 8'000'000, 8'000'000, 0),
                        point(head, none, {1, 4, 0}, 250'000, 250'000, 1'000'000, 3'000'000, 2'000'000),
                        point(head, none, {1, 8, 0}, 700'000, 550'000)});
}

TEST_CASE("tables: gzipped ones and columns in another order read the same") {
  const tables_folder folder;
  const profile p = load_profile_csv(folder.time(), 1);
  for (const char* name : {"gpu_memory.csv", "gpu_model_state.csv", "gpu_time.csv"}) {
    const std::string text = read_file(folder.path / name);
    std::filesystem::remove(folder.path / name);
    write_file(folder.path / (std::string{name} + ".gz"), gzipped(text));
    const bool time_too = std::string_view{name} == "gpu_time.csv";
    CHECK(load_profile_csv(folder.time() + (time_too ? ".gz" : ""), 1) == p);
  }
  const tables_folder turned{gpt_time, gpt_memory,
                             "param_mb,layer,recompute,tp\n417.80958904109565,embedding,full,1\n"
                             "402.7702775,encoder,none,1\n"};
  CHECK(load_profile_csv(turned.time(), 1).parameters == p.parameters);
  std::string bare = with(gpt_time, ",tokens_per_ms", "");
  for (std::size_t at = bare.find(",9\n"); at != std::string::npos; at = bare.find(",9\n"))
    bare.erase(at, 2);
  CHECK(load_profile_csv(tables_folder{bare}.time(), 1) == p);
}

TEST_CASE("tables: a missing file is named") {
  const tables_folder folder;
  CHECK(complaint(folder, 1, "gpu.csv") == "DIR/gpu.csv: a measured table is called NAME_time.csv or NAME_time.csv.gz");
  CHECK(complaint(folder, 1, "other_time.csv").starts_with("DIR/other_time.csv: its table of memory is missing"));
  std::filesystem::remove(folder.path / "gpu_memory.csv");
  CHECK(complaint(folder) ==
        "DIR/gpu_time.csv: its table of memory is missing: neither DIR/gpu_memory.csv nor DIR/gpu_memory.csv.gz is "
        "there");
  write_file(folder.path / "gpu_memory.csv", gpt_memory);
  std::filesystem::remove(folder.path / "gpu_model_state.csv");
  CHECK(complaint(folder) ==
        "DIR/gpu_time.csv: its table of model_state is missing: neither DIR/gpu_model_state.csv nor "
        "DIR/gpu_model_state.csv.gz is there");
  write_file(folder.path / "gpu_model_state.csv", gpt_state);
  std::filesystem::remove(folder.path / "gpu_time.csv");
  CHECK(complaint(folder) == "DIR/gpu_time.csv: cannot be read: No such file or directory");
}

TEST_CASE("tables: a degree that is not there is refused with those that are") {
  CHECK(complaint(tables_folder{}, 2) == "DIR/gpu_time.csv: no rows of tp 2; it has tp 1, 4");
  CHECK(complaint(tables_folder{time_header}, 2) == "DIR/gpu_time.csv: no rows of tp 2; it has no rows at all");
  CHECK(complaint(tables_folder{}, 4) ==
        "DIR/gpu_time.csv: points[0] (decoder, recompute none, rows 1, input 16, target 0): it is the only shape of "
        "decoder with recompute none that ran: one point tells nothing about how costs grow, measure at least 2 "
        "lengths");
}

TEST_CASE("tables: a field at fault is named by file, line, column and value") {
  CHECK(with_time("3.42", "-3.42") ==
        "DIR/gpu_time.csv: line 3: time_ms must be a decimal number, not negative and not above 10^12, is: \"-3.42\"");
  CHECK(with_time("3.42", "nan").find("line 3: time_ms must be a decimal number") != std::string::npos);
  CHECK(with_time("3.42", "").find("line 3: time_ms must be a decimal number") != std::string::npos);
  CHECK(with_time("3.42", "0.0") == "DIR/gpu_time.csv: line 3: time_ms must be above 0, is: \"0.0\"");
  CHECK(with_time("3.42", "1000000") ==
        "DIR/gpu_time.csv: line 3: time_ms is 1000 seconds or more: is the unit milliseconds? It is: \"1000000\"");
  CHECK(with_time("3.42", "999999.999999") == "");
  CHECK(with_time("1,full,encoder,b", "one,full,encoder,b") ==
        "DIR/gpu_time.csv: line 3: tp must be a whole number in 1..2147483648 (2^31), is: \"one\"");
  CHECK(with_time("backward,16,0,1", "backward,16.0,0,1") ==
        "DIR/gpu_time.csv: line 3: enc_seqlen must be a whole number in 1..2147483648 (2^31), is: \"16.0\"");
  CHECK(with_time("backward,16,0,1", "backward,16,-1,1") ==
        "DIR/gpu_time.csv: line 3: dec_seqlen must be a whole number in 0..2147483648 (2^31), is: \"-1\"");
  CHECK(with_time("backward,16,0,1", "backward,16,0,0") ==
        "DIR/gpu_time.csv: line 3: mbs must be a whole number in 1..2147483648 (2^31), is: \"0\"");
  CHECK(with_time("encoder,b", "embedding,b") ==
        "DIR/gpu_time.csv: line 3: layer must be one of encoder, decoder, postprocess, is: \"embedding\"");
  CHECK(with_time("encoder,b", "decoder,b") ==
        "DIR/gpu_time.csv: line 3: dec_seqlen must be above 0 for a decoder, is: \"0\"");
  CHECK(with_time("full,encoder,b", "some,encoder,b") ==
        "DIR/gpu_time.csv: line 3: recompute must be one of none, selective, full, is: \"some\"");
  CHECK(with_time("backward", "sideways") ==
        "DIR/gpu_time.csv: line 3: pass must be one of forward, backward, is: \"sideways\"");
  // Rows of other degrees are read as strictly.
  CHECK(with_time("4,none,encoder,forward,16,0,1,1", "4,none,encoder,forward,16,0,1,x").find("line 14: time_ms") !=
        std::string::npos);
  CHECK(with_memory("10.89", "10,89") ==
        "DIR/gpu_memory.csv: line 4: 9 fields where the header has 8, beginning: \"1\"");
  CHECK(with_memory("10.89", "lots").find("DIR/gpu_memory.csv: line 4: peak_activation_mb must be a decimal number") ==
        0);
  CHECK(complaint(tables_folder{gpt_time, gpt_memory, with(gpt_state, "402.7700000000003", "-1")}) ==
        "DIR/gpu_model_state.csv: line 3: param_mb must be a decimal number, not negative and not above 10^12, is: "
        "\"-1\"");
}

TEST_CASE("tables: a header at fault is named") {
  CHECK(with_time("mbs,", "batch,") == "DIR/gpu_time.csv: line 1: column 7 is not known: \"batch\"");
  CHECK(with_time("mbs,", "pass,") == "DIR/gpu_time.csv: line 1: a column is there twice: \"pass\"");
  CHECK(with_memory("tp,recompute,layer,enc_seqlen,", "tp,recompute,layer,") ==
        "DIR/gpu_memory.csv: line 1: no column enc_seqlen in the header: \"tp\"");
  CHECK(with_memory("mbs,", "tokens_per_ms,").find("column 6 is not known") != std::string::npos);
  CHECK(complaint(tables_folder{gpt_time, ""}) == "DIR/gpu_memory.csv: line 1: the file is empty");
}

TEST_CASE("tables: rows without their counterpart are refused") {
  CHECK(with_time("1,full,encoder,backward,16,0,1,3.42,9\n", "") ==
        "DIR/gpu_time.csv: line 2: layer encoder, recompute full, enc_seqlen 16, dec_seqlen 0, mbs 1: a forward "
        "without a backward");
  CHECK(with_time("1,full,encoder,forward,16,0,1,1.5,9\n", "") ==
        "DIR/gpu_time.csv: line 2: layer encoder, recompute full, enc_seqlen 16, dec_seqlen 0, mbs 1: a backward "
        "without a forward");
  CHECK(with_memory("1,full,encoder,32,0,2,0.49,11.31\n", "") ==
        "DIR/gpu_time.csv: line 4: layer encoder, recompute full, enc_seqlen 32, dec_seqlen 0, mbs 2: no memory in "
        "DIR/gpu_memory.csv");
  CHECK(with_memory("1,full,encoder,32,0,2", "1,full,encoder,32,0,2,1,1\n1,full,encoder,64,0,2") ==
        "DIR/gpu_memory.csv: line 4: layer encoder, recompute full, enc_seqlen 64, dec_seqlen 0, mbs 2: no times in "
        "DIR/gpu_time.csv");
  CHECK(complaint(tables_folder{gpt_time, gpt_memory, state_header + "1,full,embedding,5\n"}) ==
        "DIR/gpu_model_state.csv: no row of tp 1, layer encoder");
}

TEST_CASE("tables: repeats that nothing explains must agree within 20 %") {
  const std::string again = "1,full,encoder,forward,16,0,1,";
  CHECK(complaint(tables_folder{gpt_time + again + "1.8,9\n"}) == "");
  CHECK(complaint(tables_folder{gpt_time + again + "1.81,9\n"}) ==
        "DIR/gpu_time.csv: line 16: it measures the same as line 2, but their time_ms disagree by more than 20 %: 1.5 "
        "(line 2) and 1.81 (line 16)");
  CHECK(complaint(tables_folder{gpt_time, gpt_memory + "1,full,encoder,16,0,1,0.2,5.87\n"}) ==
        "DIR/gpu_memory.csv: line 7: it measures the same as line 2, but their stored_activation_mb disagree by more "
        "than 20 %: 0.2 (line 7) and 0.32 (line 2)");
  const t5_tables t5;
  CHECK(complaint(tables_folder{t5.time + "2,none,decoder,forward,16,8,1,6,1\n", t5.memory, t5.state}, 2)
            .find("disagree by more than 20 %: 4 (line 12) and 6 (line 22)") != std::string::npos);
}

TEST_CASE("tables: whatever happens to their text, they are read or refused by an error") {
  constexpr int rounds = 300;
  const std::uint64_t seed = 7'031;
  MESSAGE("seed " << seed);
  std::mt19937_64 random{seed};
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const t5_tables t5;
  const tables_folder folder{t5.time, t5.memory, t5.state};
  const std::string_view letters = "0123456789-+.eE\",\n\r az";
  int read = 0;
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::string> texts{t5.time, t5.memory, t5.state};
    std::string& text = texts[below(3)];
    for (std::size_t change = 1 + below(3); change > 0; --change) {
      const std::size_t at = below(text.size());
      switch (below(4)) {
        case 0: text[at] = letters[below(letters.size())]; break;
        case 1: text.erase(at, below(30)); break;
        case 2:
          if (const std::size_t digit = text.find_first_of("0123456789", at); digit != std::string::npos)
            text[digit] = letters[below(10)];
          break;
        default: text.insert(at, text.substr(below(text.size()), below(30)));
      }
    }
    write_file(folder.path / "gpu_time.csv", texts[0]);
    write_file(folder.path / "gpu_memory.csv", texts[1]);
    write_file(folder.path / "gpu_model_state.csv", texts[2]);
    CAPTURE(round);
    try {
      require_sound(load_profile_csv(folder.time(), 2));
      ++read;
    } catch (const error& e) {
      CHECK(std::string_view{e.what()}.starts_with(folder.path.string()));
    }
  }
  CHECK(read > rounds / 50);
  CHECK(read < rounds / 2);
}
