#include <cstdio>
#include <filesystem>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include <zlib.h>

#include <dynapipe/ext/csv.hpp>

using namespace dynapipe;

namespace {

const std::string header = "task,input_tokens,target_tokens\n";

std::string problem(std::string_view text) {
  try {
    static_cast<void>(parse_lengths(text, "data.csv"));
  } catch (const error& e) {
    return e.what();
  }
  return "none";
}

/// A file of its own in the system's folder for such, removed at the end.
class scratch_file {
 public:
  explicit scratch_file(std::string_view bytes) {
    path_ = std::filesystem::temp_directory_path() / ("dynapipe-csv-" + std::to_string(std::random_device{}()));
    std::FILE* file = std::fopen(path_.c_str(), "wb");
    REQUIRE(file != nullptr);
    REQUIRE(std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size());
    REQUIRE(std::fclose(file) == 0);
  }
  scratch_file(const scratch_file&) = delete;
  scratch_file& operator=(const scratch_file&) = delete;
  ~scratch_file() { std::filesystem::remove(path_); }
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

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

std::string read_problem(const std::string& path) {
  try {
    static_cast<void>(read_lengths(path));
  } catch (const error& e) {
    return e.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("rows, and task names once each") {
  const lengths_table table =
      parse_lengths(header + "qa,10,2\n,0,5\nqa,2147483648,0\n\"a, \"\"b\"\"\",007,1\nqa,1,1", "f");
  CHECK(table.tasks == std::vector<std::string>{"qa", "", "a, \"b\""});
  CHECK(table.rows == std::vector<length_row>{{0, 10, 2}, {1, 0, 5}, {0, 2'147'483'648, 0}, {2, 7, 1}, {0, 1, 1}});
  CHECK(table.task(table.rows[3]) == "a, \"b\"");
}

TEST_CASE("harmless differences of form read the same") {
  const lengths_table plain = parse_lengths(header + "qa,10,2\nb,3,4\n", "f");
  CHECK(parse_lengths(header + "qa,10,2\nb,3,4", "f") == plain);
  CHECK(parse_lengths("task,input_tokens,target_tokens\r\nqa,10,2\r\nb,3,4\r\n", "f") == plain);
  CHECK(parse_lengths("task,input_tokens,target_tokens\r\nqa,10,2\r\nb,3,4\r", "f") == plain);
  CHECK(parse_lengths("\xEF\xBB\xBF" + header + "qa,10,2\nb,3,4\n", "f") == plain);
  CHECK(parse_lengths(header + "qa,10,2\nb,3,4\n\n", "f") == plain);
  CHECK(parse_lengths(header + "qa,10,2\nb,3,4\r\n\r\n\n", "f") == plain);
  CHECK(parse_lengths("target_tokens,task,input_tokens\n2,qa,10\n4,b,3\n", "f") == plain);
  CHECK(parse_lengths("\"task\",\"input_tokens\",\"target_tokens\"\n\"qa\",\"10\",\"2\"\r\n\"b\",\"3\",\"4\"", "f") ==
        plain);
}

TEST_CASE("quoted fields keep commas, line ends and quotes") {
  const lengths_table table = parse_lengths(header + "\"a,\nb\r\n\"\"\",1,2\n\"\",1,2\n\"\"\"\",1,2\n", "f");
  CHECK(table.tasks == std::vector<std::string>{"a,\nb\r\n\"", "", "\""});
  // Two fields of one record with doubled quotes, of which a reader may keep views.
  CHECK(problem("\"ta\"\"sk\",\"in\"\"put\",target_tokens\n").find("no column task in the header: \"ta\"sk\"") !=
        std::string::npos);
}

TEST_CASE("errors name the file, the line and the text") {
  CHECK(problem("") == "data.csv: line 1: the file is empty");
  CHECK(problem("\xEF\xBB\xBF") == "data.csv: line 1: the file is empty");
  CHECK(problem(header) == "data.csv: line 1: no rows after the header");
  CHECK(problem(header + "\n") == "data.csv: line 1: no rows after the header");
  CHECK(problem("task,input_tokens\nqa,1\n") == "data.csv: line 1: no column target_tokens in the header: \"task\"");
  CHECK(problem("qa,10,2\n") == "data.csv: line 1: no column task in the header: \"qa\"");
  CHECK(problem("\n" + header) == "data.csv: line 1: no column task in the header: \"\"");
  CHECK(problem("task,input_tokens,target_tokens,source\nqa,1,2,x\n") ==
        "data.csv: line 1: column 4 is none of task,input_tokens,target_tokens, or there twice: \"source\"");
  CHECK(problem("task,input_tokens,target_tokens,task\nqa,1,2,x\n") ==
        "data.csv: line 1: column 4 is none of task,input_tokens,target_tokens, or there twice: \"task\"");
  CHECK(problem(header + "qa,1,2\nqa,1\n") == "data.csv: line 3: 2 fields where the header has 3, beginning: \"qa\"");
  CHECK(problem(header + "qa,1,2,3\n") == "data.csv: line 2: 4 fields where the header has 3, beginning: \"qa\"");
  CHECK(problem(header + "qa,1,2\n\nqa,1,2\n") == "data.csv: line 3: 1 fields where the header has 3, beginning: \"\"");
  CHECK(problem(header + "qa,0,0\n") == "data.csv: line 2: a sample without any token, of task: \"qa\"");
  CHECK(problem(header + "\"qa,1,2\nqa,1,2\n") == "data.csv: line 2: a quote is not closed: \"\"qa,1,2?qa,1,2?\"");
  CHECK(problem(header + "\"qa\"x,1,2\n") == "data.csv: line 2: text after a closing quote: \"x\"");
  CHECK(problem(header + "q\"a,1,2\n") == "data.csv: line 2: a quote inside a field that is not quoted: \"q\"a\"");
  CHECK(problem(header + "\"a\nb\",1,2\nqa,x,2\n") == "data.csv: line 4: input_tokens is no whole number: \"x\"");
  CHECK(problem(header + "qa,1," + std::string(100, '9') + "\n") ==
        "data.csv: line 2: target_tokens is above 2147483648 (2^31): \"" + std::string(60, '9') + "\"...");
}

TEST_CASE("counts are plain whole numbers from 0 to 2^31") {
  for (const char* text : {"", " 12", "12 ", "+3", "12.5", "1e3", "0x10", "1_000", "--5", "-", "five", "1\r2", "1\t"}) {
    CAPTURE(text);
    CHECK(problem(header + "qa,1," + text + "\n").find("line 2: target_tokens is no whole number: \"") !=
          std::string::npos);
    CHECK(problem(header + "qa," + text + ",1\n").find("line 2: input_tokens is no whole number: \"") !=
          std::string::npos);
  }
  for (const char* text : {"-1", "-0", "-99999999999999999999"}) {
    CAPTURE(text);
    CHECK(problem(header + "qa," + text + ",1\n") ==
          "data.csv: line 2: input_tokens is negative: \"" + std::string{text} + "\"");
  }
  for (const char* text : {"2147483649", "9223372036854775807", "9223372036854775808", "99999999999999999999"}) {
    CAPTURE(text);
    CHECK(problem(header + "qa," + text + ",1\n") ==
          "data.csv: line 2: input_tokens is above 2147483648 (2^31): \"" + std::string{text} + "\"");
  }
  CHECK(problem(header + "qa,2147483648,2147483648\n") == "none");
}

TEST_CASE("files are read plain or gzipped, told by content") {
  const std::string text = header + "qa,10,2\nb,3,4\n";
  const lengths_table table = parse_lengths(text, "f");
  CHECK(read_lengths(scratch_file{text}.path()) == table);
  CHECK(read_lengths(scratch_file{gzipped(text)}.path()) == table);
  // Members one after another, as `cat a.gz b.gz` makes them.
  CHECK(read_lengths(scratch_file{gzipped(header) + gzipped("qa,10,2\nb,3,4\n")}.path()) == table);
}

TEST_CASE("a gzipped file that is cut anywhere, or damaged, is refused") {
  std::string text = header;
  std::mt19937_64 random{5};
  for (int i = 0; i < 40; ++i)
    text += "task" + std::to_string(random() % 1000) + "," + std::to_string(random()) + ",1\n";
  const std::string packed = gzipped(text);
  for (std::size_t size = 2; size < packed.size(); ++size) {
    CAPTURE(size);
    const scratch_file file{packed.substr(0, size)};
    CHECK(read_problem(file.path()) == file.path() + ": cannot be read: damaged or cut gzip data");
  }
  std::string damaged = packed;
  damaged[packed.size() - 6] ^= 1;  // in the check sum
  const scratch_file file{damaged};
  CHECK(read_problem(file.path()) == file.path() + ": cannot be read: damaged or cut gzip data");
}

TEST_CASE("what is no file is refused by name") {
  CHECK(read_problem("/no/such/file.csv") == "/no/such/file.csv: cannot be read: No such file or directory");
  const std::string folder = std::filesystem::temp_directory_path().string();
  CHECK(read_problem(folder) == folder + ": cannot be read: Is a directory");
  const scratch_file empty{""};
  CHECK(read_problem(empty.path()) == empty.path() + ": line 1: the file is empty");
  const scratch_file wrong{header + "qa,one,2\n"};
  CHECK(read_problem(wrong.path()) == wrong.path() + ": line 2: input_tokens is no whole number: \"one\"");
}
