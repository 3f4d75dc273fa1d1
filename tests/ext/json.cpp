#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/ext/json.hpp>
#include <dynapipe/plan/digest.hpp>

#include "../plan/sample_plan.hpp"

using namespace dynapipe;

namespace {

/// `text` with the first `from` replaced, which must be there.
std::string with(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

/// What reading `text` complains of; "" if it does not.
template <class Read>
std::string complaint(Read read, const std::string& text) {
  try {
    (void)read(text);
  } catch (const error& e) {
    return e.what();
  }
  return "";
}
std::string of_plan(const std::string& text) {
  return complaint([](const std::string& t) { return plan_from_json(t, "p.json"); }, text);
}
std::string of_model(const std::string& text) {
  return complaint([](const std::string& t) { return model_from_json(t, "m.json"); }, text);
}
std::string of_cluster(const std::string& text) {
  return complaint([](const std::string& t) { return cluster_from_json(t, "c.json"); }, text);
}

/// An empty folder that is gone afterwards.
struct scratch {
  std::filesystem::path path;
  scratch() {
    std::random_device random;
    path = std::filesystem::temp_directory_path() / ("dynapipe-json-" + std::to_string(random()));
    std::filesystem::create_directory(path);
  }
  scratch(const scratch&) = delete;
  scratch& operator=(const scratch&) = delete;
  ~scratch() { std::filesystem::remove_all(path); }
  [[nodiscard]] std::ptrdiff_t files() const {
    return std::distance(std::filesystem::directory_iterator{path}, std::filesystem::directory_iterator{});
  }
};

}  // namespace

TEST_CASE("json: plans come back as they were, and write the same bytes again") {
  for (auto [name, p] : sample_plans::all()) {
    CAPTURE(name);
    p.provenance.model = presets::t5_11b();
    p.provenance.cluster = presets::a100_40g();
    p.provenance.cost_epoch = 3;
    p.provenance.cost_source = "quoted \" and \\ and \n";
    const std::string text = to_json_text(p);
    CHECK(plan_from_json(text) == p);
    CHECK(to_json_text(plan_from_json(text)) == text);
    CHECK(digest(plan_from_json(text)) == digest(p));
  }
  CHECK(plan_from_json(to_json_text(plan{})) == plan{});
}

TEST_CASE("json: a plan's keys stand in the documented order, one instruction a line") {
  const std::string text = to_json_text(sample_plans::with_arena());
  for (
      const char* line :
      {R"({"op":"load","mb":0,"stage":0,"buffer":0,"bytes":16,"offset":0},)",
       R"({"op":"forward","mb":0,"stage":0,"in":[0],"out":1,"offset":16,"start_ns":0,"end_ns":10},)",
       R"({"op":"forward","mb":0,"stage":1,"in":[0,2],"out":null,"offset":null,"start_ns":12,"end_ns":24},)",
       R"({"op":"send","mb":0,"stage":0,"peer":1,"tensor":"activation","buffer":1,"bytes":64,"start_ns":10,"end_ns":12},)",
       R"({"op":"recv","mb":0,"stage":0,"peer":1,"tensor":"gradient","buffer":4,"bytes":64,"offset":120,"start_ns":48,"end_ns":51},)",
       R"({"op":"wait_send","mb":0,"stage":0,"peer":1,"tensor":"activation"},)", R"({"op":"free","buffers":[0,4]},)",
       R"({"op":"backward","mb":0,"stage":1,"in":null,"out":3,"offset":112,"grads_ready":false,"start_ns":24,"end_ns":48},)"}) {
    CAPTURE(line);
    CHECK(text.find('\n' + std::string{line} + '\n') != std::string::npos);
  }
  const std::string halves = to_json_text(sample_plans::split_backward());
  CHECK(halves.find(R"({"op":"backward_weight","mb":1,"stage":0,"grads_ready":true,"start_ns":71,"end_ns":76},)") !=
        std::string::npos);
  CHECK(halves.find(
            R"({"op":"backward_input","mb":0,"stage":0,"in":4,"out":null,"offset":null,"start_ns":41,"end_ns":53},)") !=
        std::string::npos);
  CHECK(text.find(R"("recompute":"none","tensor_parallel")") != std::string::npos);
  CHECK(to_json_text(sample_plans::there_and_back()).find(R"("recompute":"mixed","tensor_parallel")") !=
        std::string::npos);
}

TEST_CASE("json: models and clusters have the documented form") {
  CHECK(to_json_text(presets::gpt_6_7b()) ==
        R"({"format":"dynapipe.model","version":1,"name":"gpt-6.7b","encoder_layers":0,"decoder_layers":32,)"
        R"("cross_attention":false,"hidden":4096,"heads":32,"kv_heads":32,"head_dim":128,"ffn":16384,"gated":false,)"
        R"("vocabulary":51200,"tied_head":true,"experts":0,"experts_per_token":0,"shared_experts":0,"expert_ffn":0,)"
        R"("window":0,"latent":null,"attention":"causal","attention_kernel":"fused","dtype":"bf16"})"
        "\n");
  cluster_spec cluster = presets::a100_40g();
  cluster.matmul_tflops = 312.25;
  cluster.intra_node = {nanoseconds{5}, 4800, 1};
  const std::string text = to_json_text(cluster);
  CHECK(text.find(R"("matmul_tflops":312.25,"memory_gbps":1555,)") != std::string::npos);
  CHECK(text.find(R"("intra_node":{"latency_ns":5,"gbps":4800,"ranks_per_link":1})") != std::string::npos);
  for (const model_spec& m : presets::models())
    CHECK(model_from_json(to_json_text(m)) == m);
  const std::string deepseek = to_json_text(presets::deepseek_v3());
  CHECK(deepseek.find(R"("experts":256,"experts_per_token":8,"shared_experts":1,"expert_ffn":2048,"window":0,)"
                      R"("latent":{"q_rank":1536,"kv_rank":512,"nope_dim":128,"rope_dim":64,"value_dim":128},)") !=
        std::string::npos);
  CHECK(model_from_json(with(deepseek, R"("q_rank":1536,)", "")).latent->q_rank == 0);
  CHECK(cluster_from_json(text) == cluster);
  cluster.efficiency = 0.1 + 0.2;
  CHECK(cluster_from_json(to_json_text(cluster)) == cluster);
}

TEST_CASE("json: a model may leave out what follows from the rest") {
  const model_spec small = model_from_json(
      R"({"format": "dynapipe.model", "version": 1, "name": "small", "encoder_layers": 0, "decoder_layers": 2,
          "cross_attention": false, "hidden": 96, "heads": 4, "ffn": 100, "vocabulary": 50, "tied_head": false,
          "window": null, "attention_kernel": "unfused", "dtype": "fp32"})");
  CHECK(small.kv_heads == 4);
  CHECK(small.head_dim == 24);
  CHECK(!small.gated);
  CHECK(small.attention == attention_mask::causal);
  CHECK(small.kernel == attention_kernel::unfused);
  CHECK(small.type == dtype::fp32);
}

TEST_CASE("json: a bad model or cluster is told by file, field and value") {
  const std::string model = to_json_text(presets::gpt_6_7b());
  CHECK(of_model(with(model, R"("experts":0)", R"("experts":8)")) ==
        "m.json: model 'gpt-6.7b': experts_per_token must lie in 1..8, it is 0");
  CHECK(of_model(with(model, R"("window":0)", R"("window":-4)")) ==
        "m.json: model 'gpt-6.7b': window must lie in 0..1000000000, it is -4");
  CHECK(of_model(with(model, R"("window":0)", R"("window":"4k")")) == "m.json: window: must be an integer, is \"4k\"");
  CHECK(of_model(with(model, R"("latent":null)", R"("latent":{"rank":4})")) == "m.json: latent: unknown key \"rank\"");
  CHECK(of_model(with(model, R"("latent":null)", R"("latent":{"kv_rank":4})")) ==
        "m.json: latent: lacks the key \"nope_dim\"");
  CHECK(of_model(with(model, R"("latent":null)", R"("latent":0)")).find("m.json: latent: must be an object") == 0);
  CHECK(of_model(with(model, R"("hidden":4096,)", "")) == "m.json: lacks the key \"hidden\"");
  CHECK(of_model(with(model, R"("hidden":4096)", R"("hidden":4096.5)")) ==
        "m.json: hidden: must be an integer, is 4096.5");
  CHECK(of_model(with(model, R"("hidden":4096)", R"("hidden":0)")).find("m.json: model 'gpt-6.7b': hidden") == 0);
  CHECK(of_model(with(model, R"("heads":32,"kv_heads":32,"head_dim":128)", R"("heads":0)")).find("head_dim") !=
        std::string::npos);
  CHECK(of_model(with(model, "bf16", "bf8")) == "m.json: dtype: must be one of bf16, fp16, fp32, fp64, is \"bf8\"");
  CHECK(of_model(with(model, "causal", "casual")).find("m.json: attention: ") == 0);
  CHECK(of_model(with(model, "\"hidden\"", "\"hiden\"")).find("unknown key \"hiden\"") != std::string::npos);
  CHECK(of_model(with(model, "dynapipe.model", "dynapipe.cluster")).find("m.json: format: ") == 0);
  CHECK(of_model(with(model, R"("version":1)", R"("version":2)")).find("m.json: version: ") == 0);

  const std::string cluster = to_json_text(presets::a100_40g());
  CHECK(of_cluster(with(cluster, R"("efficiency":0.55)", R"("efficiency":2)")).find("efficiency must lie") !=
        std::string::npos);
  CHECK(of_cluster(with(cluster, R"("ranks_per_link":1)", R"("ranks_per_link":"1")")) ==
        "c.json: intra_node.ranks_per_link: must be an integer, is \"1\"");
  CHECK(of_cluster("[]").find("c.json: must be an object, is a list") == 0);
}

TEST_CASE("json: a bad plan is told by file, field and value, and is malformed") {
  const std::string good = to_json_text(sample_plans::one_f_one_b());
  const struct {
    const char* from;
    const char* to;
    const char* told;
  } cases[] = {
      {R"({"op":"send")", R"({"op":"sand")",
       "p.json: replicas[0].devices[0].instructions[2].op: must be one of load, "},
      {R"("buffer":0,"bytes":16)", R"("buffer":-1,"bytes":16)",
       "p.json: replicas[0].devices[0].instructions[0].buffer: must be an integer in 0..2147483647, is -1"},
      {R"("bytes":16,)", "", "p.json: replicas[0].devices[0].instructions[0]: lacks the key \"bytes\""},
      {R"("bytes":16)", R"("bytes":16,"bits":128)",
       "p.json: replicas[0].devices[0].instructions[0]: unknown key \"bits\""},
      {R"("end_ns":10)", R"("end_ns":10.0)",
       "p.json: replicas[0].devices[0].instructions[1].end_ns: must be an integer, is 10.0"},
      {R"("end_ns":10)", R"("end_ns":9223372036854775808)", "is 9223372036854775808"},
      {R"("end_ns":10)", R"("end_ns":true)", "must be an integer, is true"},
      {R"("mb":0)", R"("mb":2147483648)", "must be an integer in 0..2147483647, is 2147483648"},
      {R"("grads_ready":false)", R"("grads_ready":0)", "grads_ready: must be true or false, is 0"},
      {R"("in":[0])", R"("in":0)", "instructions[1].in: must be a list, is 0"},
      {R"("buffers":[1])", R"("buffers":[[1]])", "instructions[8].buffers[0]: must be an integer, is a list"},
      {R"("out":1,"offset":null)", R"("out":1)", "lacks the key \"offset\""},
      {R"("arena_bytes":null,)", "", "p.json: replicas[0].devices[0]: lacks the key \"arena_bytes\""},
      {R"([5,0,4])", R"([5,4])", "p.json: lengths[0]: must be 3 integers, has 2 entries"},
      {R"("layout":"padded")", R"("layout":"packed")", "layout: must be one of padded, varlen, is \"packed\""},
      {R"("queues":"per_direction")", R"("queues":null)", "pipeline.queues: must be a text, is null"},
      {R"("recompute":"none","tensor)", R"("recompute":"some","tensor)", "pipeline.recompute: must be one of none, "},
      {R"("provenance":{)", R"("provenanze":{)", "unknown key \"provenanze\""},
      {R"("version":1)", R"("version":2)", "p.json: version: must be 1"},
      {"dynapipe.plan", "dynapipe.plans", "p.json: format: must be \"dynapipe.plan\", is \"dynapipe.plans\""},
  };
  for (const auto& c : cases) {
    CAPTURE(c.from);
    CAPTURE(c.to);
    const std::string text = with(good, c.from, c.to);
    CHECK_THROWS_AS((void)plan_from_json(text), malformed_plan);
    const std::string told = of_plan(text);
    CHECK_MESSAGE(told.find(c.told) != std::string::npos, "told: " << told);
  }
  for (const char* text : {"null", "[]", "3", "{}"})
    CHECK_THROWS_AS((void)plan_from_json(text), malformed_plan);
}

TEST_CASE("json: what is no JSON is told by line and column, and is not called a plan") {
  const std::string deep(100'000, '[');
  const struct {
    std::string text;
    const char* told;
  } cases[] = {
      {"", "p.json:1:1: no JSON: the text ends too early"},
      {"{\n  \"format\": NaN}", "p.json:2:13: no JSON: unexpected 'N'"},
      {"{\"a\":1}\n}", "p.json:2:1: no JSON"},
      {"{\"a\": 1e999}", "p.json:1:11: no JSON: a number that is too large"},
      {"{\"a\": \"\xff\"}", "p.json:1:8: no JSON: unexpected byte 255"},
      {"{\"a\": [1, 2", "the text ends too early"},
      {deep, "p.json:1:201: lists or objects stand more than 200 deep"},
      {"{\"a\":\"" + deep + "\",", "the text ends too early"},
      {"\"" + std::string(1'000'000, 'x') + "\n", "p.json:1:1000002: no JSON"},
  };
  for (const auto& c : cases) {
    CAPTURE(c.told);
    const std::string told = of_plan(c.text);
    CHECK_MESSAGE(told.find(c.told) != std::string::npos, "told: " << told.substr(0, 300));
    CHECK(told.size() < 400);
    bool malformed = false;
    try {
      (void)plan_from_json(c.text);
    } catch (const malformed_plan&) {
      malformed = true;
    } catch (const error&) {
    }
    CHECK(!malformed);
  }
}

TEST_CASE("json: any object is a provenance, and what is understood is kept") {
  const std::string text = to_json_text(sample_plans::one_f_one_b());
  const auto read = [&](const std::string& provenance) {
    const std::size_t from = text.find("\"provenance\":") + 13;
    return plan_from_json(text.substr(0, from) + provenance + text.substr(text.find(",\n\"lengths\"")));
  };
  CHECK(read("{}").provenance == plan_provenance{});
  CHECK(read(R"({"dynapipe":7,"model":[1],"cluster":"x","costs":3,"options":[],"else":{}})").provenance ==
        plan_provenance{});
  std::string model = to_json_text(presets::llama_3_8b());
  model.pop_back();
  const plan_provenance some =
      read(R"({"dynapipe":"9","model":)" + model + R"(,"costs":{"epoch":4},"options":{"pp":8,"b":"c","list":[1,"x"]}})")
          .provenance;
  CHECK(some.version == "9");
  CHECK(some.model == presets::llama_3_8b());
  CHECK(some.cluster == cluster_spec{});
  CHECK(some.cost_epoch == 4);
  CHECK(some.options ==
        std::vector<std::pair<std::string, std::string>>{{"b", "c"}, {"list", "[1,\"x\"]"}, {"pp", "8"}});

  plan p = sample_plans::one_f_one_b();
  p.provenance.cluster.matmul_tflops = std::numeric_limits<double>::quiet_NaN();
  p.provenance.cost_source = "no \xff utf-8";
  CHECK(plan_from_json(to_json_text(p)).replicas == p.replicas);
}

TEST_CASE("json: of two equal keys the last counts") {
  const std::string text = to_json_text(sample_plans::one_f_one_b());
  CHECK(plan_from_json(with(text, R"("sync_ns":6)", R"("sync_ns":"x","sync_ns":6)")) == sample_plans::one_f_one_b());
}

TEST_CASE("json: files are written whole or not at all") {
  const scratch folder;
  const std::filesystem::path file = folder.path / "plan.json";
  save(sample_plans::one_f_one_b(), file);
  save(sample_plans::with_arena(), file);
  CHECK(load_plan(file) == sample_plans::with_arena());
  CHECK(folder.files() == 1);

  const std::filesystem::path link = folder.path / "link.json";
  std::filesystem::create_symlink(file, link);
  save(presets::gpt_13b(), link);
  CHECK(load_model(file) == presets::gpt_13b());
  CHECK(std::filesystem::is_symlink(link));
  save(presets::h100(), folder.path / "cluster.json");
  CHECK(load_cluster(folder.path / "cluster.json") == presets::h100());
  CHECK(folder.files() == 3);

  const std::string lost = (folder.path / "none" / "plan.json").string();
  CHECK(complaint([](const std::string& path) { return save(plan{}, path), 0; }, lost)
            .find(lost + ": cannot be written") == 0);
  CHECK(complaint([](const std::string& path) { return save(plan{}, path), 0; }, folder.path.string())
            .find("cannot be written") != std::string::npos);
  if (std::filesystem::exists("/dev/full"))
    CHECK_THROWS_WITH_AS(save(sample_plans::one_f_one_b(), "/dev/full"),
                         "/dev/full: cannot be written: No space left on device", error);
  CHECK(folder.files() == 3);

  CHECK(complaint([](const std::string& path) { return load_plan(path); }, lost).find(lost + ": cannot be read") == 0);
  CHECK(
      complaint([](const std::string& path) { return load_plan(path); }, folder.path.string()).find("cannot be read") !=
      std::string::npos);
  CHECK(complaint([](const std::string& path) { return load_plan(path); }, file.string())
            .find(file.string() + ": format") == 0);
}

TEST_CASE("json: a link's slowdown beside computation is written where there is one") {
  cluster_spec cluster = presets::a100_80g();
  CHECK(to_json_text(cluster).find("overlap_slowdown") == std::string::npos);
  CHECK(cluster_from_json(to_json_text(cluster)) == cluster);
  cluster.inter_node.overlap_slowdown = 1.25;
  const std::string text = to_json_text(cluster);
  CHECK(text.find(R"("inter_node":{"latency_ns":15000,"gbps":200,"ranks_per_link":1,"overlap_slowdown":1.25})") !=
        std::string::npos);
  CHECK(cluster_from_json(text) == cluster);
  CHECK(of_cluster(with(text, "1.25", "0.5")).find("inter_node.overlap_slowdown must lie in 1..1000, it is 0.5") !=
        std::string::npos);
  CHECK(of_cluster(with(text, "1.25", "null")) == "c.json: inter_node.overlap_slowdown: must be a number, is null");
}

TEST_CASE("json: a file that does not fit leaves the old one as it was") {
  const scratch folder;
  const std::filesystem::path file = folder.path / "plan.json";
  save(presets::gpt_13b(), file);
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1000, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  std::string told;
  try {
    save(sample_plans::one_f_one_b(), file);
  } catch (const error& e) {
    told = e.what();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK(told == file.string() + ": cannot be written: File too large");
  CHECK(folder.files() == 1);
  CHECK(load_model(file) == presets::gpt_13b());
}

TEST_CASE("json: damaged plans are refused with an error or read, whatever the damage") {
  constexpr std::uint64_t seed = 51'177;
  MESSAGE("seed " << seed);
  std::mt19937_64 random{seed};
  const auto samples = sample_plans::all();
  int refused = 0;
  for (int trial = 0; trial < 2'000; ++trial) {
    CAPTURE(seed);
    CAPTURE(trial);
    std::string text = to_json_text(samples[random() % samples.size()].second);
    const std::uint64_t hits = 1 + random() % 3;
    for (std::uint64_t k = 0; k < hits; ++k)
      text[random() % text.size()] = static_cast<char>(random() % 256);
    if (random() % 4 == 0) text.resize(random() % text.size());
    try {
      const plan p = plan_from_json(text);
      CHECK(plan_from_json(to_json_text(p)) == p);
    } catch (const error& e) {
      ++refused;
      CHECK(std::string_view{e.what()}.starts_with("plan:"));
    }
  }
  CHECK(refused > 1'200);
}
